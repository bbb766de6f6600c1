# SPDX-License-Identifier: Apache-2.0
"""Convolutions under Ascend's names."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import require


def _convolve(name, x, weight, bias, stride, padding, dilation, groups, ranks, output_padding=None):
    require(
        x.dim() in ranks,
        f"{name}: the input has {x.dim()} dimensions; allowed: {', '.join(map(str, ranks))}.",
    )
    zeros = [0] * (x.dim() - 2)
    return torch.convolution(
        x,
        weight,
        bias,
        stride,
        padding,
        dilation,
        output_padding is not None,
        output_padding or zeros,
        groups,
    )


@implements("npu_conv2d")
def npu_conv2d(input, weight, bias, stride, padding, dilation, groups):
    return _convolve("npu_conv2d", input, weight, bias, stride, padding, dilation, groups, (4,))


@implements("npu_conv3d")
def npu_conv3d(input, weight, bias, stride, padding, dilation, groups):
    return _convolve("npu_conv3d", input, weight, bias, stride, padding, dilation, groups, (5,))


@implements("npu_convolution")
def npu_convolution(input, weight, bias, stride, padding, dilation, groups):
    return _convolve(
        "npu_convolution", input, weight, bias, stride, padding, dilation, groups, (4, 5)
    )


@implements("npu_conv_transpose2d")
def npu_conv_transpose2d(input, weight, bias, padding, output_padding, stride, dilation, groups):
    name = "npu_conv_transpose2d"
    return _convolve(
        name, input, weight, bias, stride, padding, dilation, groups, (4,), output_padding
    )


@implements("npu_convolution_transpose")
def npu_convolution_transpose(
    input, weight, bias, padding, output_padding, stride, dilation, groups
):
    name = "npu_convolution_transpose"
    return _convolve(
        name, input, weight, bias, stride, padding, dilation, groups, (4, 5), output_padding
    )


def _gradients(x, grad, weight, stride, padding, dilation, groups, mask, output_padding=None):
    zeros = [0] * (x.dim() - 2)
    found = torch.ops.aten.convolution_backward(
        grad, x, weight, [weight.size(0 if output_padding is None else 1) * (1 if output_padding is None else groups)],
        stride, padding, dilation, output_padding is not None, output_padding or zeros, groups, list(mask),
    )  # fmt: skip
    return tuple(x.new_empty(0) if g is None else g for g in found)


@implements("npu_conv2d_backward", "npu_conv3d_backward", "npu_convolution_backward")
def npu_convolution_backward(
    input, grad_output, weight, stride, padding, dilation, groups, output_mask
):
    return _gradients(input, grad_output, weight, stride, padding, dilation, groups, output_mask)


@implements(
    "npu_conv_transpose2d_backward",
    "npu_convolution_transpose_backward",
    "npu_conv_transpose3d_backward",
)
def npu_convolution_transpose_backward(
    input, grad_output, weight, padding, output_padding, stride, dilation, groups, output_mask
):
    return _gradients(
        input, grad_output, weight, stride, padding, dilation, groups, output_mask, output_padding
    )
