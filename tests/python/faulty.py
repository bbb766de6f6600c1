# SPDX-License-Identifier: Apache-2.0
"""Drivers of tests/drivers for Python tests: the one that fails on demand, and the discrete one."""

import fcntl
import functools
import subprocess
import tempfile
from pathlib import Path

import torch_npu

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(torch_npu.__file__).parent
SOURCES = {
    "faulty": ["faulty_driver.cpp"],
    "discrete": [
        f"discrete/{part}.cpp"
        for part in (
            "capture",
            "channels",
            "comm",
            "comm_queue",
            "comm_values",
            "driver",
            "host_kernels",
            "memory",
            "optional",
            "profiler",
            "stream",
        )
    ],
}


@functools.cache
def built_driver(name: str) -> str:
    """The path of libnpu_<name>.so: from build/core, which `make test-core` fills, else compiled here."""
    core = ROOT / "build/core"
    if (core / "build.ninja").exists():
        with open(core / ".lock", "w") as lock:  # pytest has many processes, ninja wants one
            fcntl.flock(lock, fcntl.LOCK_EX)
            command = ["cmake", "--build", str(core), "--target", f"npu_{name}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return str(core / f"test_drivers/libnpu_{name}.so")
    folder = tempfile.TemporaryDirectory(prefix=name)
    library = Path(folder.name) / f"libnpu_{name}.so"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden",
         f"-I{PACKAGE / 'include'}", f"-I{ROOT / 'src'}",
         *(str(ROOT / "tests/drivers" / file) for file in SOURCES[name]),
         "-ldl", "-lpthread", "-o", str(library)],
        check=True,
    )  # fmt: skip
    _folders.append(folder)  # removed when this process ends
    return str(library)


def faulty_environment() -> dict[str, str]:
    """The variables of a process that uses it, over the installed host driver."""
    return {
        "NPU_DRIVER": built_driver("faulty"),
        "NPU_FAULTY_BASE": str(PACKAGE / "drivers" / "libnpu_host.so"),
    }


def discrete_environment(kernels: bool = True) -> dict[str, str]:
    """The variables of a process that uses it; `kernels`: with every kind of the host driver."""
    variables = {"NPU_DRIVER": built_driver("discrete"), "NPU_FALLBACK": "silent"}
    if kernels:
        variables["NPU_DISCRETE_KERNELS"] = str(PACKAGE / "drivers" / "libnpu_host.so")
        variables["NPU_HOST_KERNELS"] = "all"
    return variables


_folders: list[tempfile.TemporaryDirectory] = []
