# SPDX-License-Identifier: Apache-2.0
"""YOLO's first layer: an image as four of half its size, convolved."""

import torch
from torch import Tensor, nn

__all__ = ["Focus"]


def fast_slice(x: Tensor) -> list[Tensor]:
    """Every second row and column, beginning at (0, 0), (1, 0), (0, 1) and (1, 1)."""
    return [x[..., row::2, column::2] for column in (0, 1) for row in (0, 1)]


def _padding(kernel, padding):
    if padding is not None:
        return padding
    return kernel // 2 if isinstance(kernel, int) else [size // 2 for size in kernel]


class Conv(nn.Module):
    """Convolution, batch norm and an activation."""

    def __init__(self, c1: int, c2: int, k=1, s=1, p=None, g: int = 1, act: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(c1, c2, k, s, _padding(k, p), groups=g, bias=False)
        self.bn = nn.BatchNorm2d(c2)
        self.act = nn.LeakyReLU(0.1, inplace=True) if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.bn(self.conv(x)))


class Focus(nn.Module):
    def __init__(self, c1: int, c2: int, k=1, s=1, p=None, g: int = 1, act: bool = True):
        super().__init__()
        self.conv = Conv(c1 * 4, c2, k, s, p, g, act)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(torch.cat(fast_slice(x), dim=1))
