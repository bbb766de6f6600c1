# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: a table of allowed edges, checked over every source file. And who may ask which processor the
device is."""

import ast
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
    "src/graph": ("npu/", "driver/", "graph/", "gtest/"),
    "src/runtime/allocator": ("npu/", "driver/", "runtime/", "c10/", "ATen/core/", "torch/version.h"),
    "src/runtime": (
        "npu/", "driver/", "runtime/", "c10/", "torch/version.h", "torch/headeronly/",
        "ATen/core/", "ATen/detail/", "ATen/Parallel.h", "ATen/EmptyTensor.h",
        "torch/csrc/autograd/engine.h",  # autograd_threads.cpp alone, see its Note
        "ATen/record_function.h",  # sanitizer/launches.cpp alone
    ),
    "src/profiler": ("npu/", "driver/", "runtime/", "profiler/", "c10/", "torch/csrc/profiler/"),
    "src/dist": (
        "npu/", "driver/", "runtime/", "profiler/", "dist/", "c10/", "ATen/", "torch/csrc/distributed/",
        "torch/csrc/jit/serialization/pickler.h", "torch/csrc/profiler/combined_traceback.h", "torch/library.h",
    ),
    "src/aten": (
        "npu/", "driver/", "compose/", "graph/", "runtime/", "profiler/", "aten/", "torch_npu/", "c10/", "ATen/",
        "torch/",
    ),
    "include/torch_npu": ("npu/", "torch_npu/", "c10/", "ATen/", "torch/"),
    "src/python": (
        "npu/", "driver/", "compose/", "graph/", "runtime/", "profiler/", "aten/", "dist/", "python/", *TORCH
    ),
    "optools/src": ("core/", "judge/", "tools/", "python/", *TORCH),
    "tests/conformance": ("npu/", "driver/", "gtest/", "gmock/"),
    "tests/drivers": ("npu/", "driver/slots.h"),
}  # fmt: skip
# Headers of whole ATen cost seconds in every file that includes them.
HEAVY = ("ATen/ATen.h", "torch/extension.h", "torch/torch.h")
# Folders that are rows of rooms: each sees those before it and itself. Headers are named from PREFIX.
ROOMS = {
    "src/aten": (
        "profile",
        "core",
        "twin",
        "ladder",
        "host_device",
        "random",
        "formats",
        "custom",
        "ops",
        "packs",
        "graph",
    ),
    "optools/src": ("core", "judge", "tools", "python"),
}
PREFIX = {"src/aten": "aten/", "optools/src": ""}
OURS = (
    "npu/", "driver/", "compose/", "runtime/", "profiler/", "aten/", "graph/", "dist/", "python/",
    "core/", "judge/", "tools/",
)  # fmt: skip
# Questions whether the device is this computer's processor. Code asks for the capability it needs
# (src/runtime/capabilities.h): whether host code can read memory, whether a copy has to be waited for.
ABOUT_THE_CPU = re.compile(
    r"\b(device_is_cpu|runs_inline|host_access|host_accessible|is_host_memory"
    r"|NPU_DRIVER_DEVICE_IS_CPU|NPU_DRIVER_INLINE|NPU_HOST_ACCESS_(NONE|COHERENT|EXPLICIT))\b"
)
MAY_ASK = (
    "src/aten/host_device/",
    "src/aten/twin/cpu.cpp",
    "src/runtime/capabilities.",  # which are what others ask for
    "src/driver/driver.h",  # the flags
    "src/driver/driver.cpp",  # what a driver with explicit access must have
)
# The same for a Python package; files in its own folder are doors, which see every room.
PACKAGE = "optools/python/op_tools"
PACKAGE_ROOMS = (
    "core", "tools", "ditorch_compat", "module_tools", "captures", "runs", "report", "cli",
)  # fmt: skip


def folder_rule(path: str) -> tuple[str, tuple[str, ...]] | None:
    matches = [folder for folder in ALLOWED if path.startswith(folder + "/")]
    if not matches:
        return None
    folder = max(matches, key=len)
    return folder, ALLOWED[folder]


# Files that no other includes: they register themselves with a later room.
REGISTERED = ("src/aten/host_device/host_call.cpp",)


def rooms_above(path: str) -> tuple[str, ...]:
    """Prefixes of headers in rooms that a file of an earlier room must not see."""
    if path in REGISTERED:
        return ()
    for folder, rooms in ROOMS.items():
        room = path.removeprefix(folder + "/").split("/")[0]
        if path.startswith(folder + "/") and room in rooms:
            return tuple(f"{PREFIX[folder]}{r}/" for r in rooms[rooms.index(room) + 1 :])
    return ()


def questions(path: str, text: str) -> list[str]:
    """Lines of a file under src/ that ask about the CPU and should ask for a capability."""
    if not path.startswith("src/") or path.startswith(MAY_ASK) or path.endswith("_test.cpp"):
        return []
    return [
        f"{path}:{number}: {found[0]}: ask for a capability, see src/runtime/capabilities.h"
        for number, line in enumerate(text.split("\n"), 1)
        if (found := ABOUT_THE_CPU.search(line.partition("//")[0]))
    ]


def complaint(path: str, header: str, allowed: tuple[str, ...], runtime: bool) -> str | None:
    if header in HEAVY:
        return "costs 7 s per file: use per-operator headers"
    if (
        header == "ATen/Parallel.h"
        and path.startswith("src/")
        and path != "src/runtime/parallel.cpp"
    ):
        return "at::parallel_for is one thread without OpenMP: use runtime/parallel.h"
    known = header.startswith(OURS) or header.startswith(TORCH)
    if not known:
        return None
    if runtime and header.startswith("ATen/ops/"):
        return "src/runtime must not call operators"
    above = rooms_above(path)
    if above and header.startswith(above):
        return "a room sees only those before it: see ROOMS in scripts/check_layers.py"
    if header.startswith(allowed):
        return None
    return f"not among {', '.join(allowed)}"


def imports_of(file: Path, modules: set[str]) -> set[str]:
    """Modules of the package that a file imports, wherever in it; not what only types need."""
    found = set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for_types = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in names]
        else:
            continue
        found |= {name for name in names if name in modules}
    return found


def cycle_in(graph: dict[str, set[str]]) -> list[str]:
    """Some names that need one another in a ring, or nothing."""
    done: set[str] = set()

    def visit(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        for other in sorted(graph.get(name, ())):
            ring = visit(other, [*way, name])
            if ring:
                return ring
        done.add(name)
        return []

    for name in sorted(graph):
        ring = visit(name, [])
        if ring:
            return ring
    return []


def package_complaints(root: Path, package: str, rooms: tuple[str, ...]) -> list[str]:
    """Imports of the package's files that go up, from a room to a later one, and rings."""
    top = package.rsplit("/", 1)[-1]
    files: dict[str, Path] = {}
    for file in sorted((root / package).rglob("*.py")):
        parts = file.relative_to(root / package).with_suffix("").parts
        files[".".join([top, *parts]).removesuffix(".__init__")] = file
    modules, bad = {*files, f"{top}._C"}, []
    graph: dict[str, set[str]] = {}
    for name, file in files.items():
        graph[name] = imports_of(file, modules) - {name, f"{top}._C"}
        parts = name.split(".")
        if len(parts) < 2 or (len(parts) == 2 and file.name != "__init__.py"):
            continue
        if parts[1] not in rooms:
            bad.append(f"{package}/{parts[1]}: is no room: {', '.join(rooms)}")
            continue
        allowed = rooms[: rooms.index(parts[1]) + 1]
        for other in sorted(graph[name]):
            if other == top or other.split(".")[1] not in allowed:
                seen = ", ".join(allowed)
                bad.append(f"{file.relative_to(root)}: imports {other}: sees only {seen}")
    ring = cycle_in(graph)
    if ring:
        bad.append(f"{package}: imports in a ring: {' -> '.join(ring)}")
    return bad


def main() -> int:
    bad = []
    tops = [d for d in ROOT.iterdir() if d.is_dir() and d.name[0] != "." and d.name != "build"]
    files = [p for top in tops for p in top.rglob("*") if p.suffix in {".c", ".h", ".cpp", ".cu"}]
    for file in sorted(files):
        path = file.relative_to(ROOT).as_posix()
        rule = folder_rule(path)
        if rule is None:
            continue
        folder, allowed = rule
        own = {p.name for p in file.parent.iterdir()}
        text = file.read_text(encoding="utf-8")
        bad += questions(path, text)
        for _, header in INCLUDE.findall(text):
            if header in own:
                continue
            why = complaint(path, header, allowed, folder.startswith("src/runtime"))
            if why:
                bad.append(f"{path}: includes {header}: {why}")
    bad += package_complaints(ROOT, PACKAGE, PACKAGE_ROOMS)
    print("\n".join(bad) if bad else f"layers: {len(files)} files, no forbidden include")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
