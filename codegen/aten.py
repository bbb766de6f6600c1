# SPDX-License-Identifier: Apache-2.0
"""Turns operator YAML into C++ against the installed torch: declarations, registrations, adapters.

Used for ops/aten/*.yaml and, the same way, for users' operator packs. Files are rewritten only
when their text changes; files that are no longer made are removed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import aten_hand
import aten_impl
import aten_list
import aten_map
from aten_model import Pack
from aten_torch import TorchOps, load_torch, packaged_yaml
from aten_yaml import load_pack
from kinds import write
from kinds_model import load_kinds
from yaml_reader import YamlError

# Each takes (pack, torch) and gives {path below --out: text}. Order does not matter.
EMITTERS = [aten_hand.emit, aten_list.emit]
# What they make needs headers of src/aten, which a user's pack does not have.
ADAPTER_EMITTERS = [aten_impl.emit, aten_map.emit]
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


def emit(pack: Pack, torch: TorchOps, adapters: bool) -> dict[str, str]:
    made: dict[str, str] = {}
    for emitter in EMITTERS + (ADAPTER_EMITTERS if adapters else []):
        for name, text in emitter(pack, torch).items():
            if name in made:
                raise ValueError(f"two emitters make {name}")
            made[name] = text
    return made


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
    parser.add_argument("--seen", type=Path, help="ops/seen_host.txt, for the list of operators")
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated files")
    parser.add_argument("--cache", type=Path, help="folder for parsed torch YAML (default: --out)")
    args = parser.parse_args()
    try:
        torch = load_torch(args.torch_yaml, args.cache or args.out)
        kinds = load_kinds(args.kinds)
        pack = load_pack(files_of(args.ops), torch, kinds)
        if not args.adapters:
            check_by_hand(pack)
        pack = dataclasses.replace(pack, seen=aten_list.load_seen(args.seen, kinds))
    except (YamlError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    write_all(args.out, emit(pack, torch, args.adapters))
    return 0


if __name__ == "__main__":
    sys.exit(main())
