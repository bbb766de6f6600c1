# SPDX-License-Identifier: Apache-2.0
"""Arguments of a call as plain values, and ditorch's files of them."""

from __future__ import annotations

import json
import os

import torch

from op_tools.core import quiet
from op_tools.core.containers import same_for_same, transform_contrainer
from op_tools.core.files import write_tensors, write_whole

FOLDER = os.path.join("op_tools_results", "op_capture_results")


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # sparse, fake: no one address
        return 0


def _stride(tensor: torch.Tensor) -> tuple | str:
    return tuple(tensor.stride()) if tensor.layout == torch.strided else "-"


def _describe(value: object, tensor) -> object:
    if isinstance(value, torch.Tensor):
        return tensor(value)
    if isinstance(value, dict):
        return {key: _describe(item, tensor) for key, item in value.items()}
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return tuple(_describe(item, tensor) for item in value)
    if isinstance(value, (list, set)):
        return [_describe(item, tensor) for item in value]
    return f"{value}"


def describe_tensor(value: torch.Tensor) -> dict:
    return {
        "device": str(value.device),
        "dtype": str(value.dtype).removeprefix("torch."),
        "numel": value.numel(),
        "shape": str(tuple(value.shape)),
        "stride": _stride(value),
        "requires_grad": value.requires_grad,
        "layout": str(value.layout),
        "data_ptr": _address(value),
    }


def describe_tensor_2024_08(value: torch.Tensor) -> dict:
    return {
        "shape": value.shape,
        "stride": _stride(value),
        "numel": value.numel(),
        "dtype": str(value.dtype),
        "device": str(value.device),
        "requires_grad": value.requires_grad,
        "layout": str(value.layout),
        "data": _address(value),
    }


def describe_call(tensor, args: tuple, kwargs: dict | None = None) -> dict:
    """{"args": tuple, "kwargs": dict when there are any}; `tensor` describes tensors."""
    with quiet():
        out: dict = {"args": tuple(_describe(value, tensor) for value in args)}
        if kwargs:
            out["kwargs"] = {key: _describe(value, tensor) for key, value in kwargs.items()}
    return out


def serialize_args_to_dict(*args: object, **kwargs: object) -> dict:
    """{"args": tuple, "kwargs": dict when there are any}; tensors become descriptions."""
    return describe_call(describe_tensor, args, kwargs)


_MEMORY_FORMATS = {
    str(each): each
    for each in (
        torch.channels_last,
        torch.channels_last_3d,
        torch.contiguous_format,
        torch.preserve_format,
    )
}


def memory_format_of(leaf: object) -> object:
    """Files have memory formats as texts: torch.save knows none."""
    return _MEMORY_FORMATS.get(leaf, leaf) if isinstance(leaf, str) else leaf


def host_copy(value: object) -> object:
    """For a file: on the cpu, and only the elements a view shows."""

    def copy(leaf: object) -> object:
        if isinstance(leaf, torch.memory_format):
            return str(leaf)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        made = leaf.detach().cpu()
        if made.layout == torch.strided and not made.is_quantized:
            bytes_shown = made.numel() * made.element_size()
            if made.untyped_storage().nbytes() > bytes_shown:  # fewer: an expanded view
                made = made.clone()
        return made.requires_grad_(leaf.requires_grad and made.is_leaf)

    with quiet(), torch.no_grad():
        return transform_contrainer(value, same_for_same(copy))


def write_args(path: str, name: str, identifier: str, args: tuple, kwargs: dict) -> None:
    """`path`.pth and its .json, each whole or not at all."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    content = {
        "name": name,
        "args": host_copy(tuple(args)),
        "kwargs": host_copy(dict(kwargs)),
        "identifier": identifier,
    }
    write_tensors(f"{path}.pth", content)
    described = json.loads(json.dumps(serialize_args_to_dict(*args, **kwargs), default=str))
    described["op"] = name
    write_whole(f"{path}.pth.json", json.dumps(described, indent=4))


def save_op_args(name: str, identifier: str, *args: object, **kwargs: object) -> None:
    """ditorch's file of a call: <folder>/<name>/<pid>/<identifier>.pth and .pth.json."""
    path = os.path.join(FOLDER, name, str(os.getpid()), str(identifier))
    try:
        write_args(path, name, identifier, args, kwargs)
        print(f"{path}.pth saved")
    except Exception as error:  # a value that cannot be written must not end a training run
        print(f"{name}: arguments could not be saved to {path}.pth: {error}")
