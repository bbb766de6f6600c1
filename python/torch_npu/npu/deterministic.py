# SPDX-License-Identifier: Apache-2.0
"""Deterministic algorithms for a part of a model, forward and backward."""

import torch
from torch import Tensor

__all__ = ["disable_deterministic_with_backward", "enable_deterministic_with_backward"]


class _Switch(torch.autograd.Function):
    """Sets the switch when the forward passes, and its opposite when the backward comes by."""

    @staticmethod
    def forward(ctx, tensor: Tensor, on: bool) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"expected a tensor, but got {type(tensor).__name__}")
        ctx.on = on
        torch.use_deterministic_algorithms(on)
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        torch.use_deterministic_algorithms(not ctx.on)
        return gradient, None


def enable_deterministic_with_backward(tensor: Tensor) -> Tensor:
    """Operators after it are deterministic; so are the backwards of what lies between this and
    disable_deterministic_with_backward."""
    return _Switch.apply(tensor, True)


def disable_deterministic_with_backward(tensor: Tensor) -> Tensor:
    """Ends what enable_deterministic_with_backward began; the backward begins here."""
    return _Switch.apply(tensor, False)
