# SPDX-License-Identifier: Apache-2.0
"""DITORCH_SHOW_DEVICE_AS_CUDA: tensors on the device say that they are on cuda.

By a property of the Python class torch.Tensor: reading `.device` costs a call of Python, operators
never come by here. The plugin and PyTorch's compiler read the real device. The cpu keeps its name:
every tensor of the script would be a cuda one.
"""

from __future__ import annotations

import os
import sys

import torch

from ditorch import devices
from ditorch.patching import Patches

_own_device = torch._C.TensorBase.device.__get__


def is_on_target(tensor: torch.Tensor) -> bool:
    # Under another function mode PyTorch asks torch.Tensor, and so us: cuda is the answer then.
    return _own_device(tensor).type in (devices.target, "cuda")


def wanted() -> bool:
    value = os.environ.get("DITORCH_SHOW_DEVICE_AS_CUDA", "").strip() or "1"
    if value not in ("0", "1"):
        raise ValueError(f"DITORCH_SHOW_DEVICE_AS_CUDA={value!r}: expected 0 or 1")
    return value == "1" and devices.target != "cpu"


def patch(patches: Patches) -> None:
    target, shown = devices.target, wanted()
    if target == "cpu":
        return
    patches.set(torch.Tensor, "is_cuda", property(is_on_target, doc=torch.Tensor.is_cuda.__doc__))
    if not shown:
        return

    reads_real = _ReadsReal()

    def device(self: torch.Tensor) -> torch.device:
        own = _own_device(self)
        if own.type != target or reads_real[sys._getframe(1).f_globals.get("__name__")]:
            return own
        return torch.device("cuda", own.index)

    patches.set(torch.Tensor, "device", property(device, doc=torch.Tensor.device.__doc__))


class _ReadsReal(dict):
    """Name of a module -> whether its code sees the real device. The plugin and PyTorch's compiler
    describe tensors by `.device` and must know where they are; scripts and libraries see cuda."""

    _PACKAGES = frozenset(["torch_npu", "torchair", "npugraph_ex"])
    _PARTS = frozenset(
        "_decomp _dynamo _export _functorch _guards _higher_order_ops _inductor _library _prims "
        "_prims_common _refs _subclasses export fx".split()
    )

    def __missing__(self, module: object) -> bool:
        package, _, rest = str(module).partition(".")
        part = rest.partition(".")[0]
        self[module] = package in self._PACKAGES or (package == "torch" and part in self._PARTS)
        return self[module]
