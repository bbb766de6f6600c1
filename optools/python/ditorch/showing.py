# SPDX-License-Identifier: Apache-2.0
"""DITORCH_SHOW_DEVICE_AS_CUDA: tensors on the device say that they are on cuda.

By a property of the Python class torch.Tensor: reading `.device` costs a call of Python, operators
never come by here. The cpu keeps its name: every tensor of the script would be a cuda one.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch

from ditorch import devices
from ditorch.patching import Patches

_own_device = torch._C.TensorBase.device.__get__


def is_on_target(tensor: torch.Tensor) -> bool:
    # Under somebody's function mode PyTorch asks torch.Tensor, and so us: cuda is the answer then.
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

    def device(self: torch.Tensor) -> torch.device:
        own = _own_device(self)
        return torch.device("cuda", own.index) if own.type == target else own

    patches.set(torch.Tensor, "device", property(device, doc=torch.Tensor.device.__doc__))
    _compile_for_the_real_one(patches)


def _compile_for_the_real_one(patches: Patches) -> None:
    """torch.compile describes tensors by what they say, and must know where they are."""
    from torch._subclasses import meta_utils

    def make(original: Callable) -> Callable:
        def describe_tensor(self, t, *args, **kwargs):
            made = original(self, t, *args, **kwargs)
            object.__setattr__(made, "device", devices.to_target(made.device))
            return made

        return describe_tensor

    patches.wrap(meta_utils.MetaTensorDescriber, "describe_tensor", make)
