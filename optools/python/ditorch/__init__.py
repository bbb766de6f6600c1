# SPDX-License-Identifier: Apache-2.0
"""ditorch: CUDA scripts run on whatever device is there, unchanged.

    import torch
    import ditorch              # or: python -m ditorch script.py

From then on `cuda` means the chosen device: in device arguments, in torch.cuda, in autocast and
GradScaler, in checkpoints, in process groups (`nccl`). Names are replaced once, in the modules that
hold them: no mode, no hook, nothing on the way of an operator, and every thread sees the same.
disable() puts everything back.

DITORCH_DEVICE               the device to use (npu, xpu, cpu, ...); otherwise what is there
DITORCH_DISABLE_MOCK=1       choose, and change nothing
DITORCH_SHOW_DEVICE_AS_CUDA=0  tensors tell their own device's name; by default `cuda`
"""

from __future__ import annotations

import os
import sys

import torch

from ditorch import choosing, devices
from ditorch.patching import Patches

__version__ = "0.1.0"
__all__ = ["device_type", "disable", "enable", "framework", "is_enabled"]

_patches: Patches | None = None


def _wanted() -> tuple[str, bool]:
    """The device, and whether `cuda` is to mean it at once."""
    try:
        return choosing.choose(), choosing.number("DITORCH_DISABLE_MOCK", 0) <= 0
    except ValueError as error:
        if sys.argv[:1] != ["-m"] or "ditorch" not in sys.orig_argv:
            raise
        # `python -m ditorch script.py` imports this package first: a line, as of any command.
        print(f"ditorch: {error}", file=sys.stderr)
        raise SystemExit(2) from None


device_type, _at_once = _wanted()
framework = choosing.framework_of(device_type)


def is_enabled() -> bool:
    return _patches is not None


def enable() -> None:
    """Makes `cuda` mean the chosen device. Does nothing on CUDA, and nothing the second time."""
    global _patches
    if _patches is not None or device_type == "cuda":
        return
    from ditorch import cuda_module, distributed, functions, processes, profiling, showing

    devices.set_target(device_type)
    patches = Patches()
    try:
        showing.patch(patches)
        functions.patch(patches)
        cuda_module.patch(patches)
        distributed.patch(patches)
        processes.patch(patches)
        profiling.patch(patches)
    except BaseException:
        patches.undo()
        raise
    _patches = patches


def disable() -> None:
    """Everything is as it was before enable()."""
    global _patches
    if _patches is not None:
        _patches.undo()
        _patches = None


def _banner() -> str:
    name = getattr(framework, "__name__", "torch")
    version = getattr(framework, "__version__", torch.__version__)
    return f"ditorch: {device_type} {name}:{version} pid: {os.getpid()}"


if _at_once and device_type != "cuda":
    enable()
    print(_banner(), file=sys.stdout, flush=True)
