# SPDX-License-Identifier: Apache-2.0
"""Builds an operator pack against the installed package: CMake, then a wheel. Also a PEP 517 backend.

The wheel holds the package with its library and opennpu_pack.json, and an entry point of group
opennpu.packs, by which torch_npu finds it.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from opennpu import pack_yaml
from opennpu.progress import Working

try:
    import tomllib
except ImportError:  # Python 3.10
    tomllib = None


class Failed(Exception):
    """Why there is no wheel, and what to do."""


@dataclasses.dataclass
class Project:
    folder: Path
    name: str
    version: str
    kind: str
    yaml: Path
    kernels: bool


def _toml(file: Path) -> dict:
    text = file.read_text(encoding="utf-8")
    if tomllib is not None:
        return tomllib.loads(text)
    found: dict = {}
    table = found
    for line in text.splitlines():  # what our own skeleton writes
        if head := re.fullmatch(r"\[([\w.-]+)\]", line.strip()):
            table = found
            for part in head[1].split("."):
                table = table.setdefault(part, {})
        elif pair := re.fullmatch(r"([\w-]+) = (.+)", line.strip()):
            table[pair[1]] = json.loads(pair[2])
    return found


def read_project(folder: Path) -> Project:
    file = folder / "pyproject.toml"
    if not file.is_file():
        raise Failed(f"{folder} has no pyproject.toml. Begin a project with opennpu pack new")
    try:
        whole = _toml(file)
        project, pack = whole["project"], whole["tool"]["opennpu"]["pack"]
        made = Project(
            folder, project["name"], project["version"], pack["kind"], folder / pack["yaml"],
            bool(pack.get("kernels", False)),
        )  # fmt: skip
    except (KeyError, ValueError, TypeError) as error:
        raise Failed(f"{file}: {error} is missing or wrong: [project] name, version; "
                     "[tool.opennpu.pack] kind, yaml") from None  # fmt: skip
    if made.kind not in ("cpp", "python", "stable"):
        raise Failed(f"{file}: kind {made.kind!r} is not known. Allowed: cpp, python, stable")
    return made


# ---- compiling -----------------------------------------------------------------------

# Messages of compilers and linkers, with the cure for each (seeds/003, FAQ).
REASONS = (
    (
        r"undefined reference to `?([^'\n]*NPUNativeFunctions::(\w+)\([^'\n]*)'",
        "the YAML lists an operator whose function no source defines with these types:\n  {0}\n"
        "Write it, or compare its parameters with the declaration in "
        "build/generated/torch_npu/csrc/aten/NPUNativeFunctions.h (int where int64_t is meant?).",
    ),
    (
        r"no declaration matches .([^\n]*NPUNativeFunctions::(\w+)\([^\n]*).\n",
        "a function has other parameters than the operator:\n  {0}\nThe candidate below it is the right one. "
        "In C++ `int` of a schema is int64_t, `float` is double; at::Scalar by value needs "
        "'scalar_by_value: true' in the YAML.",
    ),
    (
        r"call of overload(?:ed)? .([^\n]*). is ambiguous",
        "a call fits several functions equally well:\n  {0}\nGive the argument the type of one of the candidates: "
        "an attribute takes int64_t, float, bool, string or a list of them, so write int64_t(…) for an int.",
    ),
    (
        r"no matching function for call to .([^\n]*OpCommand::\w+\([^\n]*).\n",
        "OpCommand takes no such argument:\n  {0}\nThe candidates below it are in "
        "torch_npu/csrc/framework/OpCommand.h.",
    ),
    (
        r"fatal error: ([\w./-]+): No such file",
        "a header is not there: {0}. Headers of adapters are in include/torch_npu/csrc of the installed "
        "package; private ones of torch_npu are not offered.",
    ),
    (
        r"ld returned (\d+) exit status",
        "linking failed. The lines before it name what is missing; a function with other parameters than "
        "its declaration is a different function to the linker.",
    ),
)


def explain(output: str) -> str:
    """Cause and cure of the first failure that is known; empty when none is."""
    for pattern, text in REASONS:
        found = re.search(pattern, output)
        if found:
            return "cause: " + text.format(*found.groups())
    return ""


def _run(command: list[str], project: Project) -> None:
    with Working(f"building {project.name}"):
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "LC_ALL": "C", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        )  # fmt: skip
    if done.returncode != 0:
        lines = [
            line for line in done.stdout.splitlines() if not line.startswith(("--", "[", "gmake"))
        ]
        raise Failed("\n".join([*lines[-60:], "", explain(done.stdout) or f"{command[0]} failed"]))


def compile_library(project: Project) -> Path:
    cmake = shutil.which("cmake")
    if cmake is None:
        raise Failed("cmake is not installed here: pip install cmake, or your system's package")
    pack_yaml.load(project.yaml)  # its complaints are better than the compiler's
    build = project.folder / "build"
    package = pack_yaml.conformance.package()
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    _run(
        [cmake, "-S", str(project.folder), "-B", str(build), *generator, "-DCMAKE_BUILD_TYPE=Release",
         f"-DCMAKE_PREFIX_PATH={package}", f"-DNPU_PACK_PYTHON={sys.executable}",
         f"-DNPU_PACK_CACHE={pack_yaml.cache()}"],
        project,
    )  # fmt: skip
    jobs = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL") or str(os.cpu_count() or 1)
    _run([cmake, "--build", str(build), "-j", jobs], project)
    library = build / "lib" / f"lib{project.name}.so"
    if not library.is_file():
        raise Failed(
            f"{library} was not made: CMakeLists.txt has to call npu_add_pack({project.name} …)"
        )
    return library


# ---- the wheel -----------------------------------------------------------------------


def manifest(project: Project) -> dict:
    import torch
    from torch_npu._packs import INTERFACE

    return {
        "name": project.name,
        "version": project.version,
        "kind": project.kind,
        "interface": INTERFACE,
        "torch": ".".join(torch.__version__.split("+")[0].split(".")[:2]),
        "yaml": project.yaml.name,
        "library": "" if project.kind == "python" else f"lib/lib{project.name}.so",
        "kernels": project.kernels,
        "operators": pack_yaml.operators(project.yaml),
        "methods": pack_yaml.methods(project.yaml),
    }


def contents(project: Project, library: Path | None) -> dict[str, bytes]:
    """{path in the wheel: bytes}"""
    source = project.folder / project.name
    files = {
        str(f.relative_to(project.folder)): f.read_bytes() for f in sorted(source.rglob("*.py"))
    }
    if f"{project.name}/__init__.py" not in files:
        raise Failed(f"{source}/__init__.py is not there: the package of the pack")
    about = json.dumps(manifest(project), indent=1)
    files[f"{project.name}/{project.yaml.name}"] = project.yaml.read_bytes()
    files[f"{project.name}/opennpu_pack.json"] = about.encode()
    if library is not None:
        files[f"{project.name}/lib/{library.name}"] = library.read_bytes()
    return files


def build_wheel(folder: Path, into: Path) -> Path:
    project = read_project(folder)
    library = None if project.kind == "python" else compile_library(project)
    files = contents(project, library)
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    tag = f"py3-none-{'any' if library is None else platform}"
    info = f"{project.name}-{project.version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {project.name}\nVersion: {project.version}\n"
    ).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: opennpu\nRoot-Is-Purelib: true\nTag: {tag}\n"
    ).encode()
    files[f"{info}/entry_points.txt"] = (
        f"[opennpu.packs]\n{project.name} = {project.name}\n"
    ).encode()
    record = ""
    for path, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    into.mkdir(parents=True, exist_ok=True)
    wheel = into / f"{project.name}-{project.version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    return wheel
