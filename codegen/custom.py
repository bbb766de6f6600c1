# SPDX-License-Identifier: Apache-2.0
"""Turns ops/npu/*.yaml into the table of custom operators: C++ for the dispatcher, JSON for tools.

An operator is implemented where a function of python/torch_npu/ops is decorated with
@implements("name"); the rest refuse with ERR01007.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import difflib
import json
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kinds import write
from yaml_reader import Reader, YamlError, near

MADE_BY = "// Made by codegen/custom.py from ops/npu/*.yaml. Do not edit."
KEYS = ("namespace", "custom")
ENTRY_KEYS = ("func", "doc", "note")
NAMESPACES = ("npu", "atb")


@dataclasses.dataclass
class Overload:
    schema: str  # without namespace
    where: str  # file:line
    implemented: bool = False

    @property
    def name(self) -> str:
        return self.schema.partition("(")[0].strip()


@dataclasses.dataclass
class Operator:
    namespace: str
    name: str
    family: str
    doc: str
    overloads: list[Overload]
    note: str = ""  # what was decided where documents are unclear, and what is refused
    module: str = ""
    gradient: bool = False
    nearest: str = ""


def schema_problem(text: str) -> str:
    """Why PyTorch cannot read a schema; empty when it can."""
    os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import torch

    try:
        torch._C.parse_schema(text)
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    return ""


def read_file(path: Path, found: dict[tuple[str, str], Operator], problems: list[str]) -> None:
    reader = Reader(path)
    fields = reader.mapping(reader.compose(", ".join(KEYS)), "file")
    reader.known_keys(fields, "", KEYS)
    namespace = "npu"
    if "namespace" in fields:
        namespace = reader.choice(fields["namespace"][1], "key 'namespace'", NAMESPACES)
    entries = reader.sequence(fields["custom"][1], "key 'custom'") if "custom" in fields else []
    for node in entries:
        read_entry(reader, node, namespace, path, found)
    problems += reader.problems


def read_entry(reader: Reader, node, namespace: str, path: Path, found) -> None:
    entry = reader.mapping(node, "an operator")
    reader.known_keys(entry, "key 'custom': ", ENTRY_KEYS)
    if "func" not in entry:
        reader.problem(node, "key 'custom': key 'func' is missing. Give the schema.")
        return
    at = entry["func"][1]
    schema = reader.text(at, "key 'func'")
    doc = reader.text(entry["doc"][1], "key 'doc'") if "doc" in entry else ""
    why = schema_problem(f"{namespace}::{schema}")
    if why:
        reader.problem(at, f"key 'func': PyTorch cannot read the schema '{schema}': {why}")
        return
    overload = Overload(schema, f"{path}:{reader.line(at)}")
    base = overload.name.partition(".")[0]
    operator = found.get((namespace, base))
    if operator is None:
        if not doc:
            reader.problem(node, f"'{base}': key 'doc' is missing. Say in a line what it computes.")
        note = reader.text(entry["note"][1], "key 'note'") if "note" in entry else ""
        found[namespace, base] = Operator(namespace, base, path.stem, doc, [overload], note)
        return
    twin = next((o for o in operator.overloads if o.name == overload.name), None)
    if twin is not None:
        reader.problem(at, f"'{overload.name}' is there twice, first at {twin.where}. Keep one.")
        return
    operator.overloads.append(overload)


def implementations(folder: Path):
    """(namespace, overload, module, opaque, file:line) for each @implements of the folder."""
    for path in sorted(folder.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
            for call in getattr(node, "decorator_list", ()):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "implements":
                    known = {k.arg for k in call.keywords}
                    opaque = "meta" in known and "native" not in known
                    for arg in call.args:
                        namespace, _, name = arg.value.rpartition("::")
                        yield namespace or "npu", name, path.stem, opaque, f"{path}:{call.lineno}"


def mark(found: dict[tuple[str, str], Operator], folder: Path) -> list[str]:
    """Notes which overloads have a function; answers with what is wrong."""
    problems = []
    for namespace, name, module, opaque, where in implementations(folder):
        operator = found.get((namespace, name.partition(".")[0]))
        overload = (
            next((o for o in operator.overloads if o.name == name), None) if operator else None
        )
        if overload is None:
            known = [
                o.name for p in found.values() for o in p.overloads if p.namespace == namespace
            ]
            problems.append(
                f"{where}: no operator '{namespace}::{name}' in ops/npu{near(name, known)}."
            )
        elif overload.implemented:
            problems.append(f"{where}: '{name}' is implemented twice. Keep one.")
        elif operator.module not in ("", module):
            problems.append(
                f"{where}: overloads of '{name}' are in {operator.module}.py. Keep them together."
            )
        else:
            overload.implemented, operator.module = True, module
            operator.gradient = operator.gradient or not opaque
    for (
        operator
    ) in found.values():  # torch_npu._out_argument writes these from the default's results
        names = {o.name: o for o in operator.overloads}
        if operator.name in names and names[operator.name].implemented:
            names.get(f"{operator.name}.out", names[operator.name]).implemented = True
    done = [o for o in found.values() if o.module]
    for operator in found.values():
        operator.nearest = "" if operator.module else nearest(operator, done)
    return problems


def nearest(operator: Operator, done: list[Operator]) -> str:
    """The implemented operator whose name is most alike, of its family if that has any."""
    family = [o.name for o in done if o.family == operator.family]
    plain = re.sub(r"_(backward|grad|functional|v\d)(?=_|$)", "", operator.name)
    close = difflib.get_close_matches(plain, family or [o.name for o in done], n=1, cutoff=0.0)
    return close[0] if close else ""


def load(paths: list[Path], python: Path) -> list[Operator]:
    found: dict[tuple[str, str], Operator] = {}
    problems: list[str] = []
    for path in paths:
        read_file(path, found, problems)
    problems += mark(found, python)
    if problems:
        raise YamlError("\n".join(problems))
    return sorted(found.values(), key=lambda o: (o.namespace, o.name))


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def source(operators: list[Operator]) -> str:
    overloads, rows = [], []
    for o in operators:
        rows.append(
            f"    {{{quoted(o.namespace)}, {quoted(o.name)}, {quoted(o.doc)}, {quoted(o.module)},"
            f" {quoted(o.nearest)}, kOverloads + {len(overloads)}, {len(o.overloads)}}},"
        )
        overloads += [
            f"    {{{quoted(v.schema)}, {str(v.implemented).lower()}}}," for v in o.overloads
        ]
    table, all_rows = "\n".join(overloads), "\n".join(rows)
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#include "aten/custom/custom.h"

namespace npu::custom {{
namespace {{
constexpr Overload kOverloads[] = {{
{table}
}};
// In order of namespace and name.
constexpr Operator kOperators[] = {{
{all_rows}
}};
}}  // namespace

std::span<const Operator> operators() {{
  return kOperators;
}}
}}  // namespace npu::custom
"""


def listing(operators: list[Operator]) -> str:
    rows = [
        {
            "namespace": o.namespace,
            "name": o.name,
            "family": o.family,
            "doc": o.doc,
            "implemented": bool(o.module),
            "module": o.module,
            "gradient": o.gradient,
            "note": o.note,
            "nearest": o.nearest,
            "overloads": [{"schema": v.schema, "implemented": v.implemented} for v in o.overloads],
        }
        for o in operators
    ]
    return json.dumps(rows, indent=1) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", type=Path, required=True, help="folder of YAML files")
    parser.add_argument("--python", type=Path, required=True, help="folder of implementations")
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated files")
    args = parser.parse_args()
    try:
        operators = load(sorted(args.ops.glob("*.yaml")), args.python)
    except YamlError as error:
        print(error, file=sys.stderr)
        return 1
    write(args.out / "custom_operators.cpp", source(operators))
    write(args.out / "custom_operators.json", listing(operators))
    return 0


if __name__ == "__main__":
    sys.exit(main())
