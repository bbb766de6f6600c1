# SPDX-License-Identifier: Apache-2.0
"""The driver that fails on demand (tests/drivers/faulty_driver.cpp), built from installed headers."""

import functools
import subprocess
import tempfile
from pathlib import Path

import torch_npu

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(torch_npu.__file__).parent


@functools.cache
def faulty_environment() -> dict[str, str]:
    """The variables of a process that uses it, over the installed host driver."""
    folder = tempfile.TemporaryDirectory(prefix="faulty")
    library = Path(folder.name) / "libnpu_faulty.so"
    subprocess.run(
        ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden",
         f"-I{PACKAGE / 'include'}", f"-I{ROOT / 'src'}",
         str(ROOT / "tests/drivers/faulty_driver.cpp"), "-ldl", "-o", str(library)],
        check=True,
    )  # fmt: skip
    _folders.append(folder)  # removed when this process ends
    return {
        "NPU_DRIVER": str(library),
        "NPU_FAULTY_BASE": str(PACKAGE / "drivers" / "libnpu_host.so"),
    }


_folders: list[tempfile.TemporaryDirectory] = []
