# SPDX-License-Identifier: Apache-2.0
"""Runs the generator and the compiler as a user with an operator pack does."""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
TORCH = Path(torch.__file__).parent
PLUGIN = Path(importlib.util.find_spec("torch_npu").origin).parent


def generate(out: Path, *ops: Path) -> subprocess.CompletedProcess:
    """Generator on YAML files, into `out`."""
    return subprocess.run(
        [sys.executable, str(ROOT / "codegen/aten.py"), "--kinds", str(ROOT / "ops/kinds.yaml"),
         "--out", str(out), "--ops", *map(str, ops)],
        capture_output=True,
        text=True,
    )  # fmt: skip


def compile_pack(out: Path, *sources: Path, link: bool = True) -> subprocess.CompletedProcess:
    """One translation unit of all sources, against the headers of the installed torch."""
    whole = out / "pack.cpp"
    whole.write_text("".join(f'#include "{source}"\n' for source in sources), encoding="utf-8")
    command = [
        "g++", "-std=c++20", "-O0", "-fPIC", "-DAT_PER_OPERATOR_HEADERS", f"-I{out}",
        f"-I{PLUGIN / 'include'}", "-isystem", str(TORCH / "include"),
        "-isystem", str(TORCH / "include/torch/csrc/api/include"),
        str(whole),
    ]  # fmt: skip
    if link:
        command += ["-shared", "-Wl,--no-undefined", f"-L{TORCH / 'lib'}", *standard_library()]
        command += ["-ltorch_cpu", "-lc10", str(PLUGIN / "lib/libtorch_npu.so")]
        command += ["-o", str(out / "libpack.so")]
    else:
        command += ["-fsyntax-only"]
    return subprocess.run(command, capture_output=True, text=True, env=english())


def standard_library() -> list[str]:
    """The shared C++ library by its path: torch uses it, and there must not be two."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    shared = Path("/usr/lib") / multiarch / "libstdc++.so.6"
    return [str(shared)] if shared.is_file() else []


def english() -> dict[str, str]:
    """Compilers speak the user's language; the tests read English."""
    return {**os.environ, "LC_ALL": "C"}
