# SPDX-License-Identifier: Apache-2.0
"""Helpers of DeepLink's ditorch under their names: in-place work on results, float32 around a call."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch


def tensor_op_inp(tensor: torch.Tensor, op: str, *args: object) -> torch.Tensor:
    """tensor.<op>(*args), an in-place method; a parameter is changed behind autograd's back."""
    if not op.endswith("_"):
        raise AssertionError(f"{op!r} is no in-place method: its name must end in an underscore")
    inner = tensor.data if isinstance(tensor, torch.nn.Parameter) else tensor
    getattr(inner, op)(*args)
    return tensor


def copy_inp(tensor: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    return tensor_op_inp(tensor, "copy_", source)


def div_inp(tensor: torch.Tensor, divisor: object) -> torch.Tensor:
    return tensor_op_inp(tensor, "div_", divisor)


def copy_inp_advanced(target: object, source: object) -> None:
    """Copies every tensor of `source` into the one at its place in `target`."""
    if isinstance(target, torch.Tensor):
        if not isinstance(source, torch.Tensor):
            raise AssertionError(f"a tensor cannot be copied from {type(source).__name__}")
        if target is not source:
            copy_inp(target, source)
    elif isinstance(target, (list, tuple)):
        if not isinstance(source, (list, tuple)) or len(source) != len(target):
            raise AssertionError("the two structures differ")
        for ours, theirs in zip(target, source):
            copy_inp_advanced(ours, theirs)
    elif isinstance(target, dict):
        if not isinstance(source, dict) or source.keys() != target.keys():
            raise AssertionError("the two structures differ")
        for key, ours in target.items():
            copy_inp_advanced(ours, source[key])


def _rebuilt(kind: type, items: list) -> object:
    """A named tuple takes its fields one by one."""
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def to_fp32_if_tensor(value: object) -> tuple[object, object]:
    """The structure with its tensors in float32, and the same of the dtypes they had."""
    if isinstance(value, torch.Tensor):
        return value.to(torch.float32), value.dtype
    if isinstance(value, (list, tuple)):
        pairs = [to_fp32_if_tensor(item) for item in value]
        return tuple(_rebuilt(type(value), [pair[i] for pair in pairs]) for i in (0, 1))
    if isinstance(value, dict):
        pairs = {key: to_fp32_if_tensor(item) for key, item in value.items()}
        return {k: p[0] for k, p in pairs.items()}, {k: p[1] for k, p in pairs.items()}
    return value, None


def is_to_fp32_tensor(to_fp32: bool) -> Callable[[Callable], Callable]:
    """A decorator: with True, a call gets its tensors in float32 and writes its results back."""

    def decorate(function: Callable) -> Callable:
        if not to_fp32:
            return function

        @functools.wraps(function)
        def call(*args, **kwargs):
            wide_args, _ = to_fp32_if_tensor(args)
            wide_kwargs, _ = to_fp32_if_tensor(kwargs)
            result = function(*wide_args, **wide_kwargs)
            copy_inp_advanced(args, wide_args)
            copy_inp_advanced(kwargs, wide_kwargs)
            print(f"{function.__name__} mocked by fp32.")
            return result

        return call

    return decorate
