# SPDX-License-Identifier: Apache-2.0
"""Turns operator YAML into C++ against the installed torch: declarations, registrations, adapters.

Used for ops/aten/*.yaml and, the same way, for users' operator packs; with --npu also for Ascend's own
operators, ops/npu/*.yaml. Files are rewritten only
when their text changes; files that are no longer made are removed.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import aten_call
import aten_foreach
import aten_hand
import aten_list
import aten_map
import custom
from aten_model import Operator, Pack
from aten_options import shared_predicates
from aten_overload import MADE_BY
from aten_torch import TorchOps, load_torch, packaged_yaml
from aten_yaml import load_pack
from kinds import write
from kinds_model import load_kinds
from yaml_reader import YamlError, near

MADE = "made.txt"  # what the last run wrote, so that this one can remove what it does not


def files_of(paths: list[Path]) -> list[Path]:
    """YAML files; a folder stands for its *.yaml in order of names."""
    files: list[Path] = []
    for path in paths:
        files += sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    return files


def check_by_hand(pack: Pack) -> None:
    """Refuses what only the product's own build can compile."""
    problems = [
        f"{o.where.file}:{o.where.line}: key '{o.section}': '{o.name}': key 'kind' makes an adapter "
        "that only OpenNPU's own source tree compiles. Leave it out and write the function by hand."
        for o in pack.operators
        if o.kind is not None
    ]
    if problems:
        raise YamlError("\n".join(problems))


def check_adapters(pack: Pack, sources: Path | None) -> None:
    """Refuses entries that nothing can be made of, and functions that are not written."""
    problems = [
        f"{o.where.file}:{o.where.line}: key '{o.section}': '{o.name}': nothing can be generated for "
        f"it: {why}"
        for o in pack.mapped()
        if (why := no_adapter(o))
    ]
    problems += [
        f"{o.where.file}:{o.where.line}: key '{o.section}': '{o.name}': no predicate '{p.name}' in "
        f"src/aten/ops/predicates.h{near(p.name, shared_predicates())}."
        for o in (*pack.mapped(), *pack.foreach())
        for p in o.options.predicates
        if not p.shared
    ]
    if sources:
        problems += unwritten(pack.framed(), sources)
    if problems:
        raise YamlError("\n".join(problems))


def unwritten(framed: list[Operator], sources: Path) -> list[str]:
    written = names_in(sources)
    wanted = [
        (o, type_, name)
        for o in framed
        for type_, name in [
            ("npu_reason", o.impl or o.attempt),
            *(("bool", p.name) for p in o.options.predicates if not p.shared),
        ]
    ]
    return [
        f"{o.where.file}:{o.where.line}: key '{o.section}': '{o.name}': no function "
        f"'{type_} {name}(…)' in {sources}{near(name, [n for t, n in written if t == type_])}."
        for o, type_, name in wanted
        if (type_, name) not in written
    ]


def load_npu(folder: Path, python: Path, kinds, sources: Path) -> list[custom.Operator]:
    operators = custom.load(sorted(folder.glob("*.yaml")), python, kinds)
    framed = [kernel.operator for kernel in custom.kernels(operators) if kernel.operator]
    if problems := unwritten(framed, sources):
        raise YamlError("\n".join(problems))
    return operators


def no_adapter(operator: Operator) -> str:
    if operator.kind.name in aten_map.MAP_KINDS:
        return (
            ""
            if aten_map.serves(operator)
            else ("it has no meta function that builds a TensorIterator. Give key 'rule'.")
        )
    if aten_call.serves(operator):
        return ""
    return "PyTorch has no meta for its shapes, or it takes lists. Give key 'attempt'."


def names_in(folder: Path) -> set[tuple[str, str]]:
    """Functions in the C++ files below a folder that answer with a reason or a bool: (type, name)."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.cpp")))
    return {
        name for text in texts for name in re.findall(r"^(npu_reason|bool) (\w+)\(", text, re.M)
    }


def adapters_of(pack: Pack, torch: TorchOps) -> dict[str, str]:
    """What needs headers of src/aten, which a user's pack does not have."""
    maps = [o for o in pack.mapped() if o.kind.name in aten_map.MAP_KINDS]
    made = aten_map.emit(maps, torch)
    made |= aten_call.emit([o for o in pack.mapped() if o not in maps], pack, torch)
    made |= aten_foreach.emit(pack, torch)
    shards = {"native": aten_map.SHARDS, "call": aten_call.SHARDS, "foreach": aten_foreach.SHARDS}
    return made | {"native_table.cpp": table_text(shards)}


def table_text(shards: dict[str, int]) -> str:
    names = [f"{name}_rows_{i}()" for name, n in shards.items() for i in range(n)]
    declared = "\n".join(f"ladder::UnboxedRows {name};" for name in names)
    return f"""// SPDX-License-Identifier: Apache-2.0
{MADE_BY}
#include "aten/ops/register.h"

namespace npu {{
{declared}
std::vector<ladder::UnboxedRows> native_rows() {{
  return {{{", ".join(names)}}};
}}
}}  // namespace npu
"""


def emit(pack: Pack, torch: TorchOps, adapters: bool, name: str = "pack") -> dict[str, str]:
    """{path below --out: text}"""
    made = aten_hand.emit(pack, torch, "" if adapters else name) | aten_list.emit(pack, torch)
    return made | adapters_of(pack, torch) if adapters else made


def write_all(out: Path, made: dict[str, str]) -> None:
    for name, text in sorted(made.items()):
        write(out / name, text)
    before = out / MADE
    if before.is_file():
        for name in set(before.read_text(encoding="utf-8").splitlines()) - set(made):
            (out / name).unlink(missing_ok=True)
    write(before, "".join(f"{name}\n" for name in sorted(made)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--torch-yaml", type=Path, default=packaged_yaml(), help="default: the installed torch's"
    )
    parser.add_argument("--kinds", type=Path, required=True, help="ops/kinds.yaml")
    parser.add_argument(
        "--ops", type=Path, nargs="+", required=True, help="YAML files, or folders of them"
    )
    parser.add_argument(
        "--adapters", action="store_true", help="also make adapters; for OpenNPU's own build"
    )
    parser.add_argument(
        "--sources", type=Path, help="folder whose C++ has the functions of keys impl and attempt"
    )
    parser.add_argument("--npu", type=Path, help="folder of the YAML of Ascend's own operators")
    parser.add_argument("--python", type=Path, help="folder of their implementations")
    parser.add_argument("--name", default="pack", help="of a user's pack")
    parser.add_argument("--seen", type=Path, help="ops/seen_host.txt, for the list of operators")
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated files")
    parser.add_argument("--cache", type=Path, help="folder for parsed torch YAML (default: --out)")
    args = parser.parse_args()
    try:
        torch = load_torch(args.torch_yaml, args.cache or args.out)
        kinds = load_kinds(args.kinds)
        pack = load_pack(files_of(args.ops), torch, kinds)
        if args.adapters:
            check_adapters(pack, args.sources)
        else:
            check_by_hand(pack)
        pack = dataclasses.replace(pack, seen=aten_list.load_seen(args.seen, kinds))
        own = load_npu(args.npu, args.python, kinds, args.sources) if args.npu else []
    except (YamlError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    made = emit(pack, torch, args.adapters, args.name)
    write_all(
        args.out, made | custom.emit(own, args.npu.parent / "npu_tested.txt") if own else made
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
