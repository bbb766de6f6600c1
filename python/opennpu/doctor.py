# SPDX-License-Identifier: Apache-2.0
"""`opennpu doctor`: is this installation whole, and if not, what to do."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata

VARIABLES = (
    "NPU_", "ASCEND_", "TORCH_NPU_", "PYTORCH_NPU_", "SLOG_", "TORCH_DEVICE_BACKEND_AUTOLOAD",
)  # fmt: skip


class Finding(Exception):
    """Something is wrong: what, and what to do."""

    def __init__(self, what: str, do: str) -> None:
        super().__init__(what)
        self.do = do


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=run)


def check_torch() -> str:
    try:
        import torch
    except ImportError as error:
        raise Finding(f"PyTorch does not import: {error}", "pip install torch==2.13.0") from error
    return f"{torch.__version__} ({'GPU build' if torch.version.cuda else 'CPU build'})"


def check_plugin() -> str:
    try:
        import torch_npu
    except ImportError as error:
        raise Finding(str(error), "reinstall opennpu for this torch: make build") from error
    return f"torch_npu {torch_npu.__version__} at {os.path.dirname(torch_npu.__file__)}"


def check_autoload() -> str:
    import torch

    if torch.version.cuda or torch.version.hip:
        return "off: in a GPU build of torch the plugin loads on `import torch_npu` only"
    names = [e.value for e in metadata.entry_points(group="torch.backends")]
    if not any(name.startswith("torch_npu:") for name in names):
        raise Finding("no entry point torch.backends -> torch_npu", "pip install the opennpu wheel")
    if os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") != "1":
        return "off by TORCH_DEVICE_BACKEND_AUTOLOAD"
    code = "import torch; print(hasattr(torch, 'npu'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.stdout.strip() != "True":
        raise Finding(
            "`import torch` alone gives no torch.npu", f"see: {done.stderr.strip()[-300:]}"
        )
    return "`import torch` alone gives torch.npu"


def check_driver() -> str:
    import torch_npu

    info = torch_npu._C._driver_info()
    if info.get("failure"):
        raise Finding(info["failure"], "set NPU_DRIVER=host, or mend the driver it names")
    return f"{info['name']} {info['version']} by {info['vendor']}, contract {info['abi']}, {info['path']}"


def check_devices() -> str:
    import torch

    count = torch.npu.device_count()
    if count == 0:
        raise Finding("the driver reports no device", "check ASCEND_RT_VISIBLE_DEVICES")
    rows = []
    for i in range(count):
        free, total = torch.npu.mem_get_info(i)
        name = torch.npu.get_device_name(i)
        rows.append(f"npu:{i} {name}, {free / 2**30:.1f} of {total / 2**30:.1f} GiB free")
    return "; ".join(rows)


def check_profile() -> str:
    import torch_npu

    return torch_npu._C._profile_info()


def check_variables() -> str:
    found = [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith(VARIABLES)]
    return ", ".join(found) or "none set"


def check_operator() -> str:
    import torch

    x = torch.arange(6.0, device="npu").reshape(2, 3)
    if not torch.equal((x @ x.T).cpu(), x.cpu() @ x.cpu().T):
        raise Finding("a 2x3 matmul on npu:0 differs from the CPU's", "please report this")
    w = torch.ones(3, device="npu", requires_grad=True)
    (x * w).sum().backward()
    if w.grad.tolist() != [3.0, 5.0, 7.0]:
        raise Finding("a gradient on npu:0 is wrong", "please report this")
    return "matmul and a backward on npu:0 agree with the CPU"


def checks() -> Iterator[tuple[str, Callable[[], str]]]:
    yield "torch", check_torch
    yield "plugin", check_plugin
    yield "autoload", check_autoload
    yield "driver", check_driver
    yield "devices", check_devices
    yield "profile", check_profile
    yield "variables", check_variables
    yield "operator", check_operator


def run(options: argparse.Namespace) -> int:
    for name, check in checks():
        try:
            print(f"{name:10} {check()}")
        except Finding as finding:
            print(f"{name:10} FAILED: {finding}\n           do: {finding.do}")
            return 1
        except Exception as error:
            print(f"{name:10} FAILED: {type(error).__name__}: {error}")
            print("           do: the message above says what is wrong; README.md lists the set-up")
            return 1
    print("OK")
    return 0
