# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: a table of allowed edges, checked over every source file."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)

# Folder -> prefixes of headers it may include beyond the standard library and its own folder.
# A torch header is recognised by TORCH; a folder without one of those prefixes stays torch-free.
TORCH = ("ATen/", "c10/", "torch/", "caffe2/", "pybind11/")
ALLOWED = {
    "include/npu": ("npu/",),
    "drivers": ("npu/",),
    "examples": ("npu/",),
    "src/driver": ("npu/", "driver/"),
    "src/compose": ("npu/", "driver/", "compose/"),
    "src/runtime/allocator": ("npu/", "driver/", "runtime/", "c10/", "ATen/core/", "torch/version.h"),
    "src/runtime": (
        "npu/", "driver/", "runtime/", "c10/", "torch/version.h", "torch/headeronly/",
        "ATen/core/", "ATen/detail/", "ATen/Parallel.h", "ATen/EmptyTensor.h",
        "torch/csrc/autograd/engine.h",  # autograd_threads.cpp alone, see its Note
    ),
    "src/dist": ("npu/", "driver/", "runtime/", "dist/", "c10/", "ATen/", "torch/csrc/distributed/"),
    "src/aten": ("npu/", "driver/", "compose/", "runtime/", "aten/", "c10/", "ATen/", "torch/"),
    "src/python": (
        "npu/", "driver/", "compose/", "runtime/", "aten/", "dist/", "python/", *TORCH
    ),
    "optools/src": ("core/", "tools/", "python/bindings.h", *TORCH),
    "tests/conformance": ("npu/", "driver/", "gtest/", "gmock/"),
    "tests/drivers": ("npu/", "driver/slots.h"),
}  # fmt: skip
# Headers of whole ATen cost seconds in every file that includes them.
HEAVY = ("ATen/ATen.h", "torch/extension.h", "torch/torch.h")
# src/aten is a row of rooms: each sees those before it and itself.
ATEN_ROOMS = ("profile", "core", "ladder", "random", "formats", "custom", "ops")
OURS = ("npu/", "driver/", "compose/", "runtime/", "aten/", "graph/", "dist/", "python/")


def folder_rule(path: str) -> tuple[str, tuple[str, ...]] | None:
    matches = [folder for folder in ALLOWED if path.startswith(folder + "/")]
    if not matches:
        return None
    folder = max(matches, key=len)
    return folder, ALLOWED[folder]


def rooms_above(path: str) -> tuple[str, ...]:
    """Prefixes of headers in rooms of src/aten that a file of an earlier room must not see."""
    parts = path.split("/")
    if parts[:2] != ["src", "aten"] or parts[2] not in ATEN_ROOMS:
        return ()
    return tuple(f"aten/{room}/" for room in ATEN_ROOMS[ATEN_ROOMS.index(parts[2]) + 1 :])


def complaint(path: str, header: str, allowed: tuple[str, ...], runtime: bool) -> str | None:
    if header in HEAVY:
        return "costs 7 s per file: use per-operator headers"
    known = header.startswith(OURS) or header.startswith(TORCH)
    if not known:
        return None
    if runtime and header.startswith("ATen/ops/"):
        return "src/runtime must not call operators"
    above = rooms_above(path)
    if above and header.startswith(above):
        return f"a room of src/aten sees only those before it: {', '.join(ATEN_ROOMS)}"
    if header.startswith(allowed):
        return None
    return f"not among {', '.join(allowed)}"


def main() -> int:
    bad = []
    files = [p for p in ROOT.rglob("*") if p.suffix in {".c", ".h", ".cpp", ".cu"}]
    for file in sorted(files):
        path = file.relative_to(ROOT).as_posix()
        rule = folder_rule(path)
        if rule is None:
            continue
        folder, allowed = rule
        own = {p.name for p in file.parent.iterdir()}
        for _, header in INCLUDE.findall(file.read_text(encoding="utf-8")):
            if header in own:
                continue
            why = complaint(path, header, allowed, folder.startswith("src/runtime"))
            if why:
                bad.append(f"{path}: includes {header}: {why}")
    print("\n".join(bad) if bad else f"layers: {len(files)} files, no forbidden include")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
