# SPDX-License-Identifier: Apache-2.0
"""Convolution of int8 images."""

import torch
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

import torch_npu

from .linear_quant import constant

__all__ = ["QuantConv2d"]


class QuantConv2d(nn.Module):
    """(input * weight + bias) * scale, in output_dtype."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size, output_dtype: torch.dtype,
        stride=1, padding=0, dilation=1, groups: int = 1, bias: bool = True, offset: bool = False,
        offset_x: int = 0, round_mode: str = "rint", device=None, dtype=None,
    ):  # fmt: skip
        super().__init__()
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        self.groups, self.offset_x = groups, offset_x
        self.round_mode, self.output_dtype = round_mode, output_dtype
        sizes = out_channels, in_channels // groups, *self.kernel_size
        self.weight = constant(*sizes, dtype=torch.int8, device=device)
        self.scale = constant(out_channels, dtype=torch.int64, device=device)
        self.bias = constant(out_channels, dtype=torch.int32, device=device) if bias else None
        self.offset = constant(out_channels, device=device) if offset else None

    def forward(self, quant_conv2d_input: Tensor) -> Tensor:
        scale = self.scale
        if scale.dtype == torch.float32:
            scale = torch_npu.npu_trans_quant_param(scale)
        return torch_npu.npu_quant_conv2d(
            quant_conv2d_input, self.weight, scale, self.stride, self.padding, self.dilation,
            self.groups, self.offset_x, self.round_mode, self.output_dtype, self.bias, self.offset,
        )  # fmt: skip
