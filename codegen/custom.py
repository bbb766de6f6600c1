# SPDX-License-Identifier: Apache-2.0
"""Turns ops/npu/*.yaml into the table of custom operators: C++ for the dispatcher, JSON for tools.

An operator is implemented where a function of python/torch_npu/ops is decorated with
@implements("name"); the rest refuse with ERR01007. `refused` says why an operator will not be implemented,
and `nearest` which operator a program may use instead. Further keys give an operator a kernel in C++ and
a gradient: custom_kernels.py. aten.py writes what this makes.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import json
import os
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import custom_kernels
from yaml_reader import Reader, YamlError, near

MADE_BY = "// Made by codegen/aten.py from ops/npu/*.yaml. Do not edit."
KEYS = ("namespace", "custom")
ENTRY_KEYS = ("func", "doc", "note", "refused", "nearest", *custom_kernels.KEYS)
NAMESPACES = ("npu", "atb")


@dataclasses.dataclass
class Overload:
    schema: str  # without namespace
    where: str  # file:line
    implemented: bool = False
    kernel: custom_kernels.Kernel | None = None

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
    refused: str = ""  # why there is no implementation
    module: str = ""
    gradient: bool = False
    nearest: str = ""  # of an operator that is not implemented

    @property
    def kinds(self) -> list[str]:
        kernels = [o.kernel.operator for o in self.overloads if o.kernel and o.kernel.operator]
        return sorted({k.kind.name for k in kernels if k.kind})


def schema_problem(text: str) -> str:
    """Why PyTorch cannot read a schema; empty when it can."""
    if "torch" not in sys.modules:
        os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    import torch

    try:
        torch._C.parse_schema(text)
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    return ""


def read_file(
    path: Path, found: dict[tuple[str, str], Operator], problems: list[str], kinds
) -> None:
    reader = Reader(path)
    reader.kinds = kinds
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
    overload.kernel = custom_kernels.read_kernel(reader, entry, namespace, schema)
    base = overload.name.partition(".")[0]
    operator = found.get((namespace, base))
    if operator is None:
        if not doc:
            reader.problem(node, f"'{base}': key 'doc' is missing. Say in a line what it computes.")
        texts = {
            key: reader.text(entry[key][1], f"key '{key}'")
            for key in ("note", "refused", "nearest")
            if key in entry
        }
        found[namespace, base] = Operator(namespace, base, path.stem, doc, [overload], **texts)
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
                    opaque = "meta" in known
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
            operator.gradient = operator.gradient or not opaque or overload.kernel is not None
    for (
        operator
    ) in found.values():  # torch_npu._out_argument writes these from the default's results
        names = {o.name: o for o in operator.overloads}
        if operator.name in names and names[operator.name].implemented:
            names.get(f"{operator.name}.out", names[operator.name]).implemented = True
    done = [o for o in found.values() if o.module]
    for operator in found.values():
        if operator.module and operator.refused:
            problems.append(
                f"{operator.overloads[0].where}: '{operator.name}' is implemented in "
                f"{operator.module}.py. Remove the key 'refused'."
            )
        if operator.nearest and operator.nearest not in {o.name for o in done}:
            problems.append(
                f"{operator.overloads[0].where}: key 'nearest': '{operator.nearest}' is no "
                f"implemented operator{near(operator.nearest, [o.name for o in done])}."
            )
        if not operator.module and not operator.refused:
            operator.nearest = nearest(operator, done)
    return problems


def nearest(operator: Operator, done: list[Operator]) -> str:
    """The implemented operator whose name is most alike, of its family if that has any."""
    family = [o.name for o in done if o.family == operator.family]
    plain = re.sub(r"_(backward|grad|functional|v\d)(?=_|$)", "", operator.name)
    close = difflib.get_close_matches(plain, family or [o.name for o in done], n=1, cutoff=0.0)
    return close[0] if close else ""


def schemas(operators) -> dict[str, list[str]]:
    """Arguments of operators of namespace npu, by name: what gradients may call."""
    import torch

    overloads = [v for o in operators if o.namespace == "npu" for v in o.overloads]
    return {
        v.name: [a.name for a in torch._C.parse_schema(f"npu::{v.schema}").arguments]
        for v in overloads
    }


def kernels(operators) -> list[custom_kernels.Kernel]:
    return [v.kernel for o in operators for v in o.overloads if v.kernel]


def load(paths: list[Path], python: Path, kinds=()) -> list[Operator]:
    """`kinds`: what key 'kind' may name."""
    found: dict[tuple[str, str], Operator] = {}
    problems: list[str] = []
    for path in paths:
        read_file(path, found, problems, {kind.name: kind for kind in kinds})
    problems += mark(found, python)
    problems += custom_kernels.check(kernels(found.values()), schemas(found.values()))
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
            f" {quoted(o.nearest)}, {quoted(o.refused)}, kOverloads + {len(overloads)}, {len(o.overloads)}}},"
        )
        overloads += [
            f"    {{{quoted(v.schema)}, {str(v.implemented).lower()}, "
            f"{f'&kKernel_{v.kernel.cpp_name}' if v.kernel else 'nullptr'}}},"
            for v in o.overloads
        ]
    table, all_rows = "\n".join(overloads), "\n".join(rows)
    made = kernels(operators)
    known = schemas(operators)
    includes = "\n".join(f'#include "{name}"' for name in custom_kernels.headers(made))
    functions = "\n".join(custom_kernels.install_text(kernel, known) for kernel in made)
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#include "aten/custom/custom.h"
#include "aten/ops/fused/fused.h"
{includes}

namespace npu {{
namespace {{

using From = custom::Source::From;

{functions}
}}  // namespace
}}  // namespace npu

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


def tested(path: Path) -> dict[str, tuple[list[str], list[str]]]:
    """Dtypes of the cases and files of the oracles, by operator: ops/npu_tested.txt."""
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return {
        name: ([] if dtypes == "-" else dtypes.split(","), files.split(","))
        for name, dtypes, files in (row for row in rows if row and row[0] != "#")
    }


def listing(operators: list[Operator], tests: dict[str, tuple[list[str], list[str]]]) -> str:
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
            "refused": o.refused,
            "tested_dtypes": tests.get(o.name, ([], []))[0],
            "oracles": tests.get(o.name, ([], []))[1],
            "overloads": [{"schema": v.schema, "implemented": v.implemented} for v in o.overloads],
        }
        for o in operators
    ]
    return json.dumps(rows, indent=1) + "\n"


def emit(operators: list[Operator], tests: Path) -> dict[str, str]:
    """{path below --out: text}; `tests` is ops/npu_tested.txt."""
    return custom_kernels.headers(kernels(operators)) | {
        "custom_operators.cpp": source(operators),
        "custom_operators.json": listing(operators, tested(tests)),
    }
