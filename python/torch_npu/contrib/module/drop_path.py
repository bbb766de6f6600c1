# SPDX-License-Identifier: Apache-2.0
"""Stochastic depth."""

import torch
from torch import Tensor, nn

__all__ = ["NpuDropPath"]


class NpuDropPath(nn.Module):
    """Drops whole samples while training, and scales those that stay."""

    def __init__(self, drop_prob: float = 0.0):
        super().__init__()
        self.drop_prob = drop_prob or 0.0

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_prob == 0:
            return x
        shape = (x.shape[0], *[1] * (x.dim() - 1))
        keep = torch.empty(shape, dtype=x.dtype, device=x.device)
        keep.bernoulli_(1 - self.drop_prob)
        return x * keep / (1 - self.drop_prob)
