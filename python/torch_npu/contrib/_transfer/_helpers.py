# SPDX-License-Identifier: Apache-2.0
"""Names of Ascend's transfer_to_npu that programs call or replace to change how they are carried over."""

import functools

import torch

from . import patch_all
from ._devices import to_npu

# Arguments that name a device.
device_kwargs_list = [
    "device", "device_type", "map_location", "device_id", "pin_memory_device", "devices",
]  # fmt: skip


def _one(value, replace_int: bool):
    """`value` with cuda read as npu; a number means that npu where `replace_int`."""
    if replace_int and isinstance(value, int) and not isinstance(value, bool):
        return f"npu:{value}"
    return to_npu(value)


def _replace_cuda_to_npu_in_list(args_list: list, replace_int: bool) -> list:
    """Converts in place, and also the results."""
    args_list[:] = [_one(value, replace_int) for value in args_list]
    return args_list


def _replace_cuda_to_npu_in_kwargs(kwargs: dict, device_arg: str, device) -> None:
    if isinstance(device, dict):
        kwargs[device_arg] = {to_npu(key): to_npu(value) for key, value in device.items()}
    elif isinstance(device, (list, tuple)):
        kwargs[device_arg] = type(device)(to_npu(value) for value in device)
    else:
        kwargs[device_arg] = _one(device, replace_int=True)


def _wrapper_cuda(module, method: str):
    """module.method with cuda read as npu in its arguments."""
    found = getattr(module, method)
    original = getattr(found, "__wrapped__", found)
    takes_numbers = method in ("to", "to_empty")

    @functools.wraps(original)
    def decorated(*args, **kwargs):
        args = _replace_cuda_to_npu_in_list(list(args), takes_numbers)
        for name in device_kwargs_list:
            if kwargs.get(name) is not None:
                _replace_cuda_to_npu_in_kwargs(kwargs, name, kwargs[name])
        return original(*args, **kwargs)

    setattr(module, method, decorated)
    return decorated


def _device_wrapper(enter_fn, white_list) -> None:
    for name in white_list:
        if getattr(enter_fn, name, None) is not None:
            _wrapper_cuda(enter_fn, name)


def _del_nccl_device_backend_map() -> None:
    """No backend is left that PyTorch would choose for cuda."""
    chosen = getattr(torch.distributed.Backend, "default_device_backend_map", {})
    chosen.pop("cuda", None)


def _init() -> None:
    """What importing transfer_to_npu does; once."""
    patch_all()
