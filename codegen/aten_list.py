# SPDX-License-Identifier: Apache-2.0
"""The list of operators: which overload calls which kind, and what was seen to run.

    operators.json      read by `opennpu ops`
    docs/operators.md   the same as a page

Beside the YAML it reads what a test saw the host driver run (ops/seen_host.txt, one line
"overload kind[.code] rung,… dtype,…" each, made by scripts/seen_operators.py); that also covers
overloads that src/aten registers without YAML.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

from aten_model import Operator, Pack
from aten_torch import TorchOps
from yaml_reader import YamlError, near

# overload -> "kind.code" -> rungs, dtypes
Seen = dict[str, dict[str, tuple[tuple[int, ...], tuple[str, ...]]]]


def load_seen(path: Path | None, kinds) -> Seen:
    """Raises YamlError for a line that does not read, or that names no kind."""
    seen: Seen = defaultdict(dict)
    if path is None:
        return seen
    codes = {kind.name: [name for name, _ in kind.codes] for kind in kinds}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) != 4 or not set(words[2].split(",")) <= {"1", "2", "3"}:
            raise YamlError(
                f"{path}:{number}: expected 'overload kind[.code] rung,… dtype,…', rungs 1 to 3. "
                "Remake the file: make seen-operators."
            )
        kind, _, code = words[1].partition(".")
        if kind not in codes or (code and code not in codes[kind]):
            raise YamlError(
                f"{path}:{number}: '{words[1]}' is no kind and code{near(kind, codes)}. "
                "Remake the file: make seen-operators."
            )
        rungs = tuple(int(rung) for rung in words[2].split(","))
        seen[words[0]][words[1]] = (rungs, tuple(words[3].split(",")))
    return seen


def calls_of(operator: Operator) -> list[str]:
    """The kinds, with codes, that an entry says it calls."""
    if operator.kind is None:
        return [kind.name for kind in operator.uses]
    if operator.section == "foreach":
        return [f"multi_map.{operator.kind.name}"]
    calls = [(operator.kind, code) for code in operator.all_codes]
    calls += [(kind, code) for _, kind, code in operator.options.sites]
    return [f"{kind.name}.{code}" if code else kind.name for kind, code in calls]


def how(operator: Operator) -> str:
    if operator.impl or operator.attempt:
        return "impl" if operator.impl else "attempt"
    return "kind" if operator.kind is not None else "hand"


def rows(pack: Pack, torch: TorchOps) -> list[dict]:
    found: dict[str, dict] = {}
    for operator in pack.operators:
        for function in operator.functions if calls_of(operator) else ():
            name = f"{function.namespace}::{function.func.name}"
            found[name] = {
                "overload": name,
                "calls": calls_of(operator),
                "how": how(operator),
                "section": operator.section,
            }
    for name, calls in pack.seen.items():
        # Seen with another torch, which has overloads that this one lacks.
        if name.removeprefix("aten::") not in torch.functions:
            continue
        row = found.setdefault(
            name, {"overload": name, "calls": [], "how": "hand", "section": "supported"}
        )
        row["seen"] = {call: list(dtypes) for call, (_, dtypes) in sorted(calls.items())}
        row["rungs"] = sorted({rung for rungs, _ in calls.values() for rung in rungs})
        # What ran on rung 3 alone is a part of a composition, and needed only for that.
        parts = [call for call in sorted(calls) if calls[call][0] == (3,)]
        row["calls"] += [c for c in sorted(calls) if c not in row["calls"] and c not in parts]
        if parts:
            row["parts"] = parts
    return [found[name] for name in sorted(found)]


def page(listed: list[dict]) -> str:
    seen = sum("seen" in row for row in listed)
    lines = []
    for row in listed:
        dtypes = sorted({d for each in row.get("seen", {}).values() for d in each})
        calls = ", ".join(f"`{call}`" for call in row["calls"])
        lines.append(
            f"| `{row['overload']}` | {calls} | {row['how']} "
            f"| {' '.join(map(str, row.get('rungs', ()))) or '-'} | {' '.join(dtypes) or '-'} |"
        )
    return f"""# Operators

Made from ops/aten/*.yaml and ops/seen_host.txt. {len(listed)} overloads reach the driver, {seen} of them were
seen to on the host driver with all its kernels. Every other operator that PyTorch has on the CPU runs on the
CPU rungs of the ladder. `opennpu ops` shows this list for the driver you use.

How: `kind`, the adapter is generated from the line of YAML; `impl`, shapes are PyTorch's and the frame is
filled in C++; `attempt`, shapes are settled in C++ as well; `hand`, all of it is C++. Rungs it was seen on: 1, the driver ran the call as it was; 2, after copies or
casts; 3, as other kinds that src/compose made it of. dtypes: of the first input, as seen.

| overload | calls | how | rungs | dtypes |
|---|---|---|---|---|
{chr(10).join(lines)}
"""


def emit(pack: Pack, torch: TorchOps) -> dict[str, str]:
    listed = rows(pack, torch)
    return {
        "operators.json": json.dumps({"operators": listed}, indent=1) + "\n",
        "docs/operators.md": page(listed),
    }
