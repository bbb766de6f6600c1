# SPDX-License-Identifier: Apache-2.0
"""Every environment variable the tools read, so that one that is misspelt is not simply ignored."""

from __future__ import annotations

import difflib
import os

from op_tools.core.warning import warn

_OF_EACH = ("LIST", "DISABLE_LIST", "STEPS")
_TOLERANCE = "AUTOCOMPARE_ERROR_TOLERANCE"
_TOLERANCES = tuple(
    _TOLERANCE + dtype for dtype in ("", "_FLOAT16", "_BFLOAT16", "_FLOAT32", "_FLOAT64")
)
KNOWN = {*_TOLERANCES}
# With an operator's or an API's name before them.
_ENDINGS = (*(f"_{name}" for name in _TOLERANCES[1:]), "_OP_DTYPE_CAST_DICT")
_families: set[str] = set()
_warned: set[str] = set()


def add(family: str, names: tuple[str, ...]) -> None:
    """OP_<family>_<name> is read. Tools say so by their class (OpTool.variables)."""
    _families.add(family)
    KNOWN.update(f"OP_{family}_{name}" for name in names)


def add_tool(family: str, names: tuple[str, ...]) -> None:
    add(family, (*_OF_EACH, *names))


add("TOOLS", ("DEVICE", "VERBOSE", "PRINT_STACK", "MAX_CACHE_SIZE"))


def check() -> None:
    """Warns, once, of each variable that is set and unknown."""
    for name in os.environ:
        if name in KNOWN or name in _warned or name.endswith(_ENDINGS):
            continue
        # Other programs have variables that begin with OP_: those are ours only where they are
        # nearly the name of one.
        ours = _TOLERANCE in name or name.startswith(tuple(f"OP_{f}_" for f in _families))
        if not (ours or name.startswith("OP_")):
            continue
        near = difflib.get_close_matches(name, sorted(KNOWN), n=1, cutoff=0.6 if ours else 0.85)
        if ours or near:
            _warned.add(name)
            hint = f"; did you mean {near[0]}?" if near else ""
            warn(f"op_tools: no tool reads the variable {name}{hint}")
