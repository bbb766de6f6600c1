# SPDX-License-Identifier: Apache-2.0
"""Device arguments: an int, a string, a torch.device or nothing, as an index."""

from typing import Union

import torch

from torch_npu import _C

Device = Union[torch.device, str, int, None]


def _get_device_index(device: Device, optional: bool = False, allow_cpu: bool = False) -> int:
    """The index of `device`; -1 for the cpu where that is allowed.

    Without an index it is the current device, if `optional`.
    """
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device, type(None))):
        raise TypeError(f"Expected a npu device, but got: {device!r}")
    if isinstance(device, int):
        return device
    if device is not None:
        parsed = device if isinstance(device, torch.device) else torch.device(device)
        if allow_cpu and parsed.type == "cpu":
            return -1
        if parsed.type != "npu":
            raise ValueError(f"Expected a npu device, but got: {device}")
        if parsed.index is not None:
            return parsed.index
    if not optional:
        raise ValueError(
            f"Expected a torch.device with a specified index or an integer, but got: {device}"
        )
    return _C._get_device()


def _checked_index(device: Device) -> int:
    """The index of an existing device; the current one when none is given."""
    index = _get_device_index(device, optional=True)
    _C._check_device_index(index)
    return index


def not_yet(name: str, part: str):
    """A function or class of torch_npu that a later part of the product brings."""
    text = f"torch.npu.{name} is not in this version: it comes with {part}."

    def raises(*args, **kwargs):
        from torch_npu.utils._error_code import ErrCode, pta_error

        raise NotImplementedError(text + pta_error(ErrCode.NOT_SUPPORT))

    about = {"__doc__": f"Raises NotImplementedError: comes with {part}."}
    if name[0].isupper():  # a class, so that isinstance() keeps working
        return type(name, (), {**about, "__init__": raises, "__module__": "torch.npu"})
    raises.__name__ = raises.__qualname__ = name
    raises.__doc__ = about["__doc__"]
    return raises
