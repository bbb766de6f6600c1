# SPDX-License-Identifier: Apache-2.0
"""Modulated deformable convolution as a module."""

import math

import torch
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

import torch_npu

__all__ = ["DCNv2", "ModulatedDeformConv"]


class ModulatedDeformConv(nn.Module):
    """Convolution that reads its input at learnt places, each weighted by a learnt factor.

    With `pack` the module computes offsets and factors itself; without, forward takes
    (input, offsets, factors). Offsets come as mmcv orders them: y, x of each point of the kernel.
    """

    def __init__(
        self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1,
        deformable_groups=1, bias=True, pack=True,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        self.groups, self.deformable_groups, self.pack = groups, deformable_groups, pack
        self.weight = nn.Parameter(
            torch.empty(out_channels, in_channels // groups, *self.kernel_size)
        )
        self.bias = nn.Parameter(torch.empty(out_channels)) if bias else None
        self.split_num = deformable_groups * 2 * math.prod(self.kernel_size)
        if pack:
            self.conv_offset = nn.Conv2d(
                in_channels, self.split_num // 2 * 3, self.kernel_size, self.stride, self.padding,
                self.dilation,
            )  # fmt: skip
        self.init_param()

    def init_param(self) -> None:
        bound = 1 / math.sqrt(self.weight.size(1) * self.groups * math.prod(self.kernel_size))
        nn.init.uniform_(self.weight, -bound, bound)
        zeros = [self.bias] if self.bias is not None else []
        for parameter in [*zeros, *(self.conv_offset.parameters() if self.pack else ())]:
            nn.init.zeros_(parameter)

    def forward(self, x) -> Tensor:
        if self.pack:
            made = self.conv_offset(x)
            offset, mask = made[:, : self.split_num], torch.sigmoid(made[:, self.split_num :])
        else:
            x, offset, mask = x
        # The operator takes all offsets along x, then all along y, then the factors.
        whole = torch.cat([offset[:, 1::2], offset[:, ::2], mask], 1)
        (high, wide), (down, across) = self.kernel_size, self.padding
        return torch_npu.npu_deformable_conv2d(
            x.float(), self.weight, whole.float(), self.bias, kernel_size=[wide, high],
            stride=[1, 1, *self.stride], padding=[down, down, across, across],
            dilation=[1, 1, *self.dilation], groups=self.groups,
            deformable_groups=self.deformable_groups, modulated=True,
        )[0]  # fmt: skip


DCNv2 = ModulatedDeformConv
