# SPDX-License-Identifier: Apache-2.0
"""Turns ops/wide.yaml into the table of operators that the CPU rungs compute in a wider dtype."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from aten_torch import load_torch, packaged_yaml
from kinds import write
from yaml_reader import Reader, YamlError, near

SECTIONS = ("missing", "imprecise", "slow", "indices", "composites", "refused")
KEYS = ("func", "dtypes", "as", "when", "mixed", "rounded", "worth", "indices")
WORTHS = ("products",)
HALVES = ("float16", "bfloat16")
# The caller's dtypes, as c10::ScalarType names them.
DTYPES = {
    "bool": "Bool",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "complex32": "ComplexHalf",
}
WIDER = {"float32": "Float", "float64": "Double"}


@dataclasses.dataclass
class Row:
    section: str
    name: str
    dtypes: tuple[str, ...] = ()
    wide: str = ""
    when: str = ""
    mixed: tuple[int, ...] = ()
    rounded: tuple[int, ...] = ()
    worth: str = ""
    indices: str = ""


def base_names(functions) -> dict[str, set[str]]:
    """Arguments of all overloads of each operator, in-place ones under the plain name."""
    found: dict[str, set[str]] = {}
    for overload, function in functions.items():
        name = overload.partition(".")[0]
        plain = name[:-1] if name.endswith("_") and not name.startswith("__") else name
        arguments = {a.name for a in function.func.arguments.flat_all}
        found.setdefault(plain, set()).update(arguments)
    return found


def read_row(reader: Reader, node, section: str, known: dict[str, set[str]]) -> Row:
    fields = reader.mapping(node, f"key '{section}'")
    reader.known_keys(fields, f"key '{section}': ", KEYS)

    def text(key: str) -> str:
        return reader.text(fields[key][1], f"key '{key}'") if key in fields else ""

    def items(key: str) -> list:
        return reader.sequence(fields[key][1], f"key '{key}'") if key in fields else []

    row = Row(section, text("func"), when=text("when"), indices=text("indices"))
    if row.name not in known:
        reader.problem(node, f"'{row.name}' is no operator of PyTorch{near(row.name, known)}.")
        return row
    for key, argument in (("when", row.when), ("indices", row.indices)):
        if argument and argument not in known[row.name]:
            reader.problem(
                node,
                f"key '{key}': {row.name} has no argument '{argument}'{near(argument, known[row.name])}.",
            )
    dtypes = []
    for item in items("dtypes"):
        dtype = reader.choice(item, "key 'dtypes'", (*DTYPES, "halves"))
        dtypes += HALVES if dtype == "halves" else (dtype,)
    row.dtypes = tuple(dtypes)
    if bool(dtypes) == bool(row.indices):
        reader.problem(node, f"{row.name}: give either 'dtypes' or 'indices'.")
    if "as" in fields:
        row.wide = reader.choice(fields["as"][1], "key 'as'", WIDER)
    if "worth" in fields:
        row.worth = reader.choice(fields["worth"][1], "key 'worth'", WORTHS)
    row.mixed = tuple(int(reader.text(item, "key 'mixed'")) for item in items("mixed"))
    row.rounded = tuple(int(reader.text(item, "key 'rounded'")) for item in items("rounded"))
    return row


def read(path: Path, functions) -> list[Row]:
    reader = Reader(path)
    fields = reader.mapping(reader.compose(", ".join(SECTIONS)), "file")
    reader.known_keys(fields, "", SECTIONS)
    known = base_names(functions)
    rows: list[Row] = []
    seen: set[tuple] = set()
    for section, (_, body) in fields.items():
        if section in ("refused", "composites"):
            continue  # `refused` is for readers; `composites` are read elsewhere
        for node in reader.sequence(body, f"key '{section}'"):
            row = read_row(reader, node, section, known)
            for dtype in row.dtypes or ("int32 indices",):
                key = (row.name, dtype, section == "slow")
                if key in seen:
                    reader.problem(node, f"{row.name} of {dtype} is there twice. Keep one.")
                seen.add(key)
            rows.append(row)
    if reader.problems:
        raise YamlError("\n".join(reader.problems))
    return rows


def read_composites(path: Path, functions) -> list[str]:
    reader = Reader(path)
    fields = reader.mapping(reader.compose(", ".join(SECTIONS)), "file")
    names = []
    for node in reader.sequence(fields["composites"][1], "key 'composites'"):
        names.append(reader.text(node, "key 'composites'"))
        if names[-1] not in functions:
            reader.problem(
                node, f"'{names[-1]}' is no operator of PyTorch{near(names[-1], functions)}."
            )
    if reader.problems:
        raise YamlError("\n".join(reader.problems))
    return names


def quoted(text: str) -> str:
    return f'"{text}"' if text else "nullptr"


def emit(rows: list[Row], composites: list[str]) -> str:
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Made by codegen/wide.py from ops/wide.yaml. Do not edit.",
        '#include "aten/twin/wide.h"',
        "",
        "namespace npu::twin {",
        "namespace {",
        "constexpr std::uint64_t bit(c10::ScalarType dtype) {",
        "  return std::uint64_t{1} << static_cast<unsigned>(dtype);",
        "}",
        "using enum c10::ScalarType;",
        "const WideRow kRows[] = {",
    ]
    for row in sorted(rows, key=lambda row: row.name):
        bits = " | ".join(f"bit({DTYPES[d]})" for d in row.dtypes) or "0"
        mixed = sum(1 << i for i in row.mixed)
        rounded = sum(1 << i for i in row.rounded) if row.rounded else "~0u"
        slow, products = (str(said).lower() for said in (row.section == "slow", row.worth != ""))
        lines.append(
            f'    {{"aten::{row.name}", {bits}, {WIDER.get(row.wide, "Undefined")}, '
            f"{quoted(row.when)}, {mixed}, {rounded}, {quoted(row.indices)}, {slow}, {products}}},"
        )
    lines += ["};", "const char* const kComposites[] = {"]
    lines += [f'    "aten::{name}",' for name in composites]
    lines += [
        "};",
        "}  // namespace",
        "WideNames wide_composites() {",
        "  return {kComposites, sizeof(kComposites) / sizeof(kComposites[0])};",
        "}",
        "WideTable wide_table() {",
        "  return {kRows, sizeof(kRows) / sizeof(kRows[0])};",
        "}",
        "}  // namespace npu::twin",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--yaml", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated file")
    args = parser.parse_args()
    torch = load_torch(packaged_yaml(), args.out)
    try:
        rows = read(args.yaml, torch.functions)
        composites = read_composites(args.yaml, torch.functions)
    except YamlError as error:
        print(error, file=sys.stderr)
        return 1
    write(args.out / "wide_table.cpp", emit(rows, composites))
    return 0


if __name__ == "__main__":
    sys.exit(main())
