# SPDX-License-Identifier: Apache-2.0
"""Arguments of a call as plain values."""

from __future__ import annotations

import torch


def _address(tensor: torch.Tensor) -> int:
    try:
        return tensor.data_ptr()
    except RuntimeError:  # sparse, fake: no one address
        return 0


def _stride(tensor: torch.Tensor) -> tuple | str:
    return tuple(tensor.stride()) if tensor.layout == torch.strided else "-"


def _describe(value: object) -> object:
    if isinstance(value, torch.Tensor):
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
    if isinstance(value, dict):
        return {key: _describe(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(_describe(item) for item in value)
    if isinstance(value, (list, set)):
        return [_describe(item) for item in value]
    return f"{value}"


def serialize_args_to_dict(*args: object, **kwargs: object) -> dict:
    """{"args": tuple, "kwargs": dict when there are any}; tensors become descriptions."""
    out: dict = {"args": tuple(_describe(value) for value in args)}
    if kwargs:
        out["kwargs"] = {key: _describe(value) for key, value in kwargs.items()}
    return out
