# SPDX-License-Identifier: Apache-2.0
"""Device arguments that say cuda, read as the chosen device.

The plugin has the same idea for its own device (torch_npu.contrib.transfer_to_npu). There are two
because neither wheel may need the other, this one serves any device, can be undone, and leaves
`torch.device("cuda")` what it is: scripts ask `device.type == "cuda"`.
"""

from __future__ import annotations

import torch

target = "cpu"


def set_target(device: str) -> None:
    global target
    target = device


def _with_index(index: int | None) -> torch.device:
    # The cpu is one device; a second number of it is refused by PyTorch.
    return torch.device(target) if index is None or target == "cpu" else torch.device(target, index)


def to_target(device: object) -> object:
    """`device` with cuda read as the target; anything else comes back as it is."""
    if isinstance(device, str):
        if device == "cuda" or device.startswith("cuda:"):
            return str(_with_index(torch.device(device).index))
        return device
    if isinstance(device, torch.device) and device.type == "cuda":
        return _with_index(device.index)
    return device


def is_number(device: object) -> bool:
    """`device=0`: a number among the arguments of a device."""
    return isinstance(device, int) and not isinstance(device, bool)


def numbered_to_target(device: object) -> object:
    """to_target(), where a number means a device too."""
    return _with_index(device) if is_number(device) else to_target(device)


def from_cuda_argument(device: object) -> torch.device:
    """The argument of `.cuda()`: nothing, a number, a name or a device."""
    if device is None:
        return torch.device(target)
    if is_number(device):
        return _with_index(device)
    made = torch.device(device)
    if made.type not in ("cuda", target):
        raise RuntimeError(f"Invalid device, must be cuda device: got {made}")
    return _with_index(made.index)


def map_all(args: tuple, kwargs: dict) -> tuple[list, dict]:
    return [to_target(a) for a in args], {k: to_target(v) for k, v in kwargs.items()}
