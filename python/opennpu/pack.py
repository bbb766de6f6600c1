# SPDX-License-Identifier: Apache-2.0
"""`opennpu pack`: begin an operator pack of your own, build it, check it."""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
import sys
from pathlib import Path

SKELETON = Path(__file__).with_name("pack_skeleton")
NAME = re.compile(r"[a-z][a-z0-9_]{1,31}")
# Namespaces of operators that are not a package's to take.
TAKEN = ("npu", "atb", "aten", "prim", "prims", "quantized")
KINDS = ("cpp", "python", "stable")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="write a project into ./NAME")
    new.add_argument("name", help="lower case letters, digits and _: also the Python package")
    new.add_argument(
        "--kind", choices=KINDS, default="cpp",
        help="cpp: ATen; stable: PyTorch's stable headers, quick to compile; python: torch.library",
    )  # fmt: skip
    for action, text in (
        ("build", "compile a project and put its wheel into dist/"),
        ("check", "check a project's YAML and sources without compiling"),
    ):
        sub = actions.add_parser(action, help=text)
        sub.add_argument("folder", nargs="?", default=".", help="default: the current one")
    actions.add_parser("list", help="list installed packs and whether they loaded")


def refuse(text: str) -> int:
    print(f"opennpu pack: {text}", file=sys.stderr)
    return 2


def who_has(name: str) -> str:
    """Why the package cannot be called so: it would be hidden by another, or hide it."""
    if keyword.iskeyword(name):
        return "it is a word of Python"
    if name in TAKEN:
        return "operators of PyTorch or of npu have this namespace"
    if name in sys.builtin_module_names or importlib.util.find_spec(name):
        return "a module of this Python is called so"
    return ""


def new(name: str, kind: str) -> int:
    if not NAME.fullmatch(name):
        return refuse(
            f"{name!r} is no name for a pack. Use 2 to 32 lower case letters, digits and _, beginning with "
            "a letter, such as my_ops"
        )
    target = Path.cwd() / name
    if target.exists():
        return refuse(f"{target} exists. Choose another name, or remove it first")
    taken = who_has(name)
    if taken:
        return refuse(
            f"{name!r} is no name for a pack: {taken}. Choose another, such as {name}_ops"
        )
    written = []
    for file in sorted([*(SKELETON / "all").rglob("*.txt"), *(SKELETON / kind).rglob("*.txt")]):
        folder = SKELETON / ("all" if (SKELETON / "all") in file.parents else kind)
        path = str(file.relative_to(folder)).removesuffix(".txt").replace("NAME", name)
        text = file.read_text(encoding="utf-8").replace("@name@", name).replace("@kind@", kind)
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, encoding="utf-8")
        written.append(path)
    print(f"{name}: {', '.join(sorted(written))}\nnext: cd {name}, and follow README.md")
    return 0


def check(folder: Path) -> int:
    from opennpu import pack_build, pack_functions, pack_yaml

    try:
        project = pack_build.read_project(folder)
        rows = pack_yaml.operators(project.yaml)
        missing = pack_functions.missing(project, rows)
    except (pack_build.Failed, pack_yaml.YamlError) as error:
        print(error, file=sys.stderr)
        return 1
    for row in rows:
        print(f"{project.yaml.name}:{row['line']}: {row['section']}: {row['overload']}")
    if missing:
        print("\n".join(missing), file=sys.stderr)
        return 1
    print(f"{project.name}: {len(rows)} operators, nothing wrong")
    return 0


def build(folder: Path) -> int:
    from opennpu import pack_build, pack_yaml

    try:
        wheel = pack_build.build_wheel(folder, folder / "dist")
    except (pack_build.Failed, pack_yaml.YamlError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"made {wheel}\nnext: pip install --no-deps {wheel}")
    return 0


def show_installed() -> int:
    import torch_npu  # noqa: F401
    from torch_npu import _packs

    for pack in _packs.ALL:
        count = len(pack.manifest.get("operators", ()))
        print(f"{pack.name}: {count} operators, {pack.folder}: {pack.state}")
    if not _packs.ALL:
        print(_packs.why_none())
    return 0


def run(options: argparse.Namespace) -> int:
    if options.action == "new":
        return new(options.name, options.kind)
    if options.action == "list":
        return show_installed()
    folder = Path(options.folder).absolute()
    return check(folder) if options.action == "check" else build(folder)
