# SPDX-License-Identifier: Apache-2.0
"""`opennpu driver`: begin a driver of your own, and test it."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from opennpu import conformance

SKELETON = Path(__file__).with_name("skeleton")
# From the package's copy of drivers/null; op.cpp, CMakeLists.txt and README.md are the skeleton's own.
NULL_FILES = ("driver.cpp", "memory.cpp", "stream.cpp", "null.h")
NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
TAKEN = ("host", "null", "cuda")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="write a driver project into ./NAME")
    new.add_argument("name", help="lower case letters, digits and _; the value for NPU_DRIVER=")
    check = actions.add_parser("check", help="test a driver against the contract")
    check.add_argument("driver", help="the path of a .so, or host, null, a name")
    conformance.add_options(check)
    actions.add_parser("where", help="the folder to give to CMake as CMAKE_PREFIX_PATH")


def refuse(text: str) -> int:
    print(f"opennpu driver: {text}", file=sys.stderr)
    return 2


def null_sources() -> Path | None:
    package = conformance.package()
    folder = package / "share/opennpu/drivers/null" if package else None
    return folder if folder and (folder / "driver.cpp").exists() else None


def renamed(text: str, name: str, title: str) -> str:
    """A file of drivers/null as a file of the new driver."""
    for old, new in (
        ("npu::null", f"{name}_driver"),
        ("npu: null:", f"npu: {name}:"),
        ('"null.h"', f'"{name}.h"'),
        ('"null", "OpenNPU"', f'"{name}", "{title}"'),
        ('"Null device"', f'"{title} device"'),
        ('"null"', f'"{name}"'),
        ("null driver", f"{name} driver"),
        ("// SPDX-License-Identifier: Apache-2.0\n", ""),
        (" `opennpu driver new` makes a\n// driver of your own from this folder.\n", "\n"),
    ):
        text = text.replace(old, new)
    return text


def new(name: str) -> int:
    if not NAME.fullmatch(name):
        return refuse(
            f"{name!r} is no name for a driver. Use at most 32 lower case letters, digits and _, "
            "beginning with a letter, such as acme"
        )
    if name in TAKEN:
        return refuse(f"{name!r} is a driver of OpenNPU's own. Choose another name")
    target = Path.cwd() / name
    if target.exists():
        return refuse(f"{target} exists. Choose another name, or remove it first")
    sources = null_sources()
    if sources is None:
        return refuse("this package lacks share/opennpu/drivers/null. Reinstall the opennpu wheel")
    title = name.replace("_", " ").title()
    files = {}
    for file in NULL_FILES:
        written = f"{name}.h" if file == "null.h" else file
        files[written] = renamed((sources / file).read_text(encoding="utf-8"), name, title)
    for file in sorted(SKELETON.iterdir()):
        text = file.read_text(encoding="utf-8")
        files[file.name] = text.replace("@name@", name).replace("@title@", title)
    target.mkdir()
    for file, text in files.items():
        (target / file).write_text(text, encoding="utf-8")
    print(f"{name}: {', '.join(sorted(files))}\nnext: cd {name}, and follow README.md")
    return 0


def run(options: argparse.Namespace) -> int:
    if options.action == "new":
        return new(options.name)
    if options.action == "check":
        return conformance.run(options)
    package = conformance.package()
    if package is None:
        return refuse("torch_npu is not installed here. pip install the opennpu wheel")
    print(package)
    return 0
