# SPDX-License-Identifier: Apache-2.0
"""Lists of names -> which operators and which Python APIs a tool wants.

A list holds regular expressions, separated by commas; one must match a whole name. A name with
`::` is an operator (`aten::addmm`, with or without its overload), any other a Python API
(`torch.nn.functional.linear`). `.*` is everything.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from functools import lru_cache

from op_tools.core import _C, options
from op_tools.core.warning import warn

EVERYTHING = ".*"
_warned: set[str] = set()


class Patterns:
    """One list, compiled."""

    def __init__(self, variable: str, value: str) -> None:
        pieces = [piece.strip() for piece in value.split(",")]
        pieces = [piece for piece in pieces if piece]
        self.everything = EVERYTHING in pieces
        compiled = []
        for piece in pieces:
            try:
                compiled.append((piece, re.compile(piece)))
            except re.error as error:
                raise ValueError(
                    f"{variable}: {piece!r} is no regular expression: {error}"
                ) from None
        self.operators = [(p, c) for p, c in compiled if "::" in p]
        self.apis = [(p, c) for p, c in compiled if "::" not in p and p != EVERYTHING]
        self.variable = variable

    def match_api(self, name: str) -> bool:
        return self.everything or any(c.fullmatch(name) for _, c in self.apis)

    def operator_numbers(self) -> list[int]:
        names = _C.operator_names() if self.operators else []
        found = []
        for piece, pattern in self.operators:
            hits = [
                i
                for i, name in enumerate(names)
                if pattern.fullmatch(name) or pattern.fullmatch(name.split(".")[0])
            ]
            if not hits:
                warn_unknown(self.variable, piece, (n.split(".")[0] for n in names))
            found += hits
        return found

    def check_apis(self) -> None:
        for piece, _ in self.apis:
            if re.fullmatch(r"[\w.]+", piece) and not _api_exists(piece):
                warn_unknown(self.variable, piece, known_apis())


def warn_unknown(variable: str, piece: str, names: Iterable[str]) -> None:
    if piece in _warned:
        return
    _warned.add(piece)
    near = difflib.get_close_matches(piece, sorted(set(names)), n=3, cutoff=0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    warn(f"{variable}: no operator is called {piece!r}{hint}")


@lru_cache(maxsize=1)
def known_apis() -> list[str]:
    import torch.overrides

    functions = torch.overrides.get_overridable_functions()
    names = (torch.overrides.resolve_name(f) for group in functions.values() for f in group)
    return [name for name in names if name]


def _api_exists(name: str) -> bool:
    import importlib

    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part, None)
        return found is not None
    return False


class Lists:
    """OP_<TOOL>_LIST and OP_<TOOL>_DISABLE_LIST as they are now."""

    def __init__(self, family: str) -> None:
        name = f"OP_{family}_LIST"
        self.wanted = Patterns(name, options.text(name, EVERYTHING))
        name = f"OP_{family}_DISABLE_LIST"
        self.refused = Patterns(name, options.text(name))

    @property
    def needs_apis(self) -> bool:
        return bool(self.wanted.apis and not self.wanted.everything) or bool(self.refused.apis)

    def takes_api(self, name: str) -> bool:
        return self.wanted.match_api(name) and not self.refused.match_api(name)

    def apply(self, tool: _C.Tool, kernels: bool = True, applied: bool = False) -> None:
        """Without `kernels` the tool gets none; `applied`: only those of calls set_api() names."""
        wanted, refused = self.wanted, self.refused
        wanted.check_apis()
        refused.check_apis()
        kernels = kernels and not refused.everything
        by_api = applied or (bool(wanted.apis) and not wanted.everything)
        tool.select(
            devices=options.devices(),
            operators=_operators(wanted, nothing=applied or not kernels),
            refused=refused.operator_numbers(),
            by_api=kernels and by_api,
            refuses_apis=bool(refused.apis),
        )


def _operators(wanted: Patterns, nothing: bool) -> list[int] | None:
    if nothing:
        return []
    return None if wanted.everything else wanted.operator_numbers()
