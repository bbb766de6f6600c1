# SPDX-License-Identifier: Apache-2.0
"""Activations under contrib's names."""

import torch
from torch import Tensor, nn

__all__ = ["Mish", "SiLU", "Swish"]


class Mish(nn.Module):
    """x * tanh(softplus(x))."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.mish(x)


class SiLU(nn.Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.silu(x)


class Swish(nn.Module):
    """x * sigmoid(beta * x)."""

    def __init__(self, beta: float = 1.0):
        super().__init__()
        self.beta = beta

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.beta * x)
