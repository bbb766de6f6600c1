# SPDX-License-Identifier: Apache-2.0
"""`python -m torch_npu.utils.collect_env`: what to put into a bug report."""

import os
import site
from collections import namedtuple

import torch
from torch.utils import collect_env as torch_env

import torch_npu

TORCH_AVAILABLE = True
TORCH_NPU_AVAILABLE = True

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "get_torch_npu_version", "main"]

SystemEnv = namedtuple(
    "SystemEnv",
    [
        "torch_version", "torch_npu_version", "is_debug_build", "gcc_version", "clang_version",
        "cmake_version", "os", "libc_version", "python_version", "python_platform", "pip_version",
        "pip_packages", "conda_packages", "caching_allocator_config", "is_xnnpack_available",
        "cpu_info", "cann_version", "driver",
    ],
)  # fmt: skip

# Label of each field, in the order of the report; an empty label begins a paragraph.
_REPORT = [
    ("PyTorch version", "torch_version"),
    ("torch_npu version", "torch_npu_version"),
    ("Is debug build", "is_debug_build"),
    ("", ""),
    ("OS", "os"),
    ("GCC version", "gcc_version"),
    ("Clang version", "clang_version"),
    ("CMake version", "cmake_version"),
    ("Libc version", "libc_version"),
    ("", ""),
    ("Python version", "python_version"),
    ("Python platform", "python_platform"),
    ("PYTORCH_NPU_ALLOC_CONF", "caching_allocator_config"),
    ("Is XNNPACK available", "is_xnnpack_available"),
    ("", ""),
    ("CPU", "cpu_info"),
    ("", ""),
    ("CANN", "cann_version"),
    ("Driver", "driver"),
    ("Pip packages", "pip_packages"),
    ("Conda packages", "conda_packages"),
]


def check_directory_path_readable(path: str) -> None:
    """Refuses a folder that the user does not own or cannot read; links are followed."""
    check_path_owner_consistent(path)
    if os.path.islink(path):
        raise RuntimeError(f"Invalid path is a soft chain: {path}")
    if not os.path.isdir(path) or not os.access(path, os.R_OK):
        raise RuntimeError(f"The path is not a readable folder: {path}")


def check_path_owner_consistent(path: str) -> None:
    if not os.path.exists(path):
        raise RuntimeError(f"The path does not exist: {path}")
    if os.geteuid() != 0 and os.stat(path).st_uid not in (0, os.geteuid()):
        raise RuntimeError(f"The path belongs to another user: {path}")


def get_torch_npu_install_path() -> str:
    """The folder of the package in this Python's site-packages, or nothing."""
    for folder in site.getsitepackages():
        if os.path.isdir(os.path.join(folder, "torch_npu")):
            return os.path.join(folder, "torch_npu")
    return ""


def get_torch_npu_version() -> str:
    return torch_npu.__version__ if TORCH_NPU_AVAILABLE else "N/A"


def get_cann_version() -> str:
    """What programs that ask for the toolkit of the chip are told; none is installed."""
    return torch_npu.utils.get_cann_version() or "not known"


def get_driver() -> str:
    """What runs the operators: the driver's name, version and devices."""
    info = torch_npu._C._driver_info()
    if "failure" in info:
        return f"did not load: {info['failure']}"
    names = [torch_npu.npu.get_device_name(i) for i in range(torch_npu.npu.device_count())]
    return f"{info['name']} {info['version']}, devices {names}"


def get_env_info() -> SystemEnv:
    found = torch_env.get_env_info()
    return SystemEnv(
        torch_version=torch.__version__ if TORCH_AVAILABLE else "N/A",
        torch_npu_version=get_torch_npu_version(),
        is_debug_build=str(torch.version.debug) if TORCH_AVAILABLE else "N/A",
        gcc_version=found.gcc_version,
        clang_version=found.clang_version,
        cmake_version=found.cmake_version,
        os=found.os,
        libc_version=found.libc_version,
        python_version=found.python_version,
        python_platform=found.python_platform,
        pip_version=found.pip_version,
        pip_packages=found.pip_packages,
        conda_packages=found.conda_packages,
        caching_allocator_config=os.environ.get("PYTORCH_NPU_ALLOC_CONF", ""),
        is_xnnpack_available=found.is_xnnpack_available,
        cpu_info=found.cpu_info,
        cann_version=get_cann_version(),
        driver=get_driver(),
    )


def pretty_str(envinfo: SystemEnv) -> str:
    lines = []
    for label, field in _REPORT:
        if not label:
            lines.append("")
            continue
        value = getattr(envinfo, field)
        text = "Could not collect" if value is None else str(value) or "none"
        lines.append(f"{label}:\n{text}" if "\n" in text or label == "CANN" else f"{label}: {text}")
    return "\n".join(lines)


def get_pretty_env_info() -> str:
    return pretty_str(get_env_info())


def main() -> None:
    print("Collecting environment information...")
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
