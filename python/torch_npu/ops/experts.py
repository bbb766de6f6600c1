# SPDX-License-Identifier: Apache-2.0
"""The first half of a quantised expert layer in one operator: grouped product, SwiGLU, quantisation of each row."""

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import refuse_given, require
from torch_npu.ops.matmul import _bounds, _check_total


def _check(name, x, weight, weight_scale, x_scale) -> None:
    for what, tensor, rank in (("x", x, 2), ("weight", weight, 3)):
        require(
            tensor.dtype == torch.int8,
            f"{name}: {what} is {tensor.dtype}; allowed: int8.",
            "TYPE",
        )
        require(
            tensor.dim() == rank,
            f"{name}: {what} has {tensor.dim()} dimensions; allowed: {rank}.",
        )
    experts, rows, columns = weight.shape
    require(
        x.size(1) == rows and columns % 2 == 0,
        f"{name}: x has shape {list(x.shape)} and weight {list(weight.shape)}; weight has as many rows as x "
        "columns, and an even number of columns.",
    )
    for what, scale, shape in (
        ("weight_scale", weight_scale, [experts, columns]),
        ("x_scale", x_scale, [x.size(0)]),
    ):
        require(
            list(scale.shape) == shape,
            f"{name}: {what} has shape {list(scale.shape)}; it must be {shape}.",
        )


def _run(name, x, weight, weight_scale, x_scale, group_list, kind):
    """(rows as int8, their scales); 0 behind the last group."""
    _check(name, x, weight, weight_scale, x_scale)
    groups = _bounds(group_list, kind, name)
    _check_total(name, groups, x, 0, "rows")
    require(
        len(groups) == weight.size(0),
        f"{name}: group_list has {len(groups)} groups; there are {weight.size(0)} weights.",
    )
    parts, at = [], 0
    for i, count in groups:
        rows = slice(at, at + count)
        # Whole numbers: exact in float64.
        sums = (x[rows].double() @ weight[i].double()).float()
        parts.append(sums * x_scale[rows, None].float() * weight_scale[i].float())
        at += count
    parts.append(x_scale.new_zeros(x.size(0) - at, weight.size(2), dtype=torch.float32))
    left, right = torch.cat(parts).chunk(2, -1)
    y = F.silu(left) * right
    scale = y.abs().amax(-1) / 127 if y.size(1) else y.new_zeros(y.size(0))
    steps = torch.where(scale > 0, scale, 1.0)[:, None]
    return torch.clamp(torch.round(y / steps), -128, 127).to(torch.int8), scale


def _empty(x, columns):
    return (
        x.new_empty(x.size(0), columns // 2),
        x.new_empty(x.size(0), dtype=torch.float32),
    )


def _meta(x, weight, group_list, weight_scale, x_scale, *, bias=None, offset=None):
    _check("npu_grouped_matmul_swiglu_quant", x, weight, weight_scale, x_scale)
    return *_empty(x, weight.size(2)), x.new_empty(0, dtype=torch.float32)


@implements("npu_grouped_matmul_swiglu_quant", meta=_meta)
def npu_grouped_matmul_swiglu_quant(
    x, weight, group_list, weight_scale, x_scale, *, bias=None, offset=None
):
    name = "npu_grouped_matmul_swiglu_quant"
    refuse_given(name, bias=bias, offset=offset)
    out, scale = _run(name, x, weight, weight_scale, x_scale, group_list, 0)
    return out, scale, scale.new_empty(0)


def _single(name, what, tensors):
    require(len(tensors) == 1, f"{name}: {what} has {len(tensors)} tensors; allowed: 1.")
    return tensors[0]


def _meta_v2(x, weight, weight_scale, x_scale, group_list, **rest):
    name = "npu_grouped_matmul_swiglu_quant_v2"
    _check(
        name,
        x,
        _single(name, "weight", weight),
        _single(name, "weight_scale", weight_scale),
        x_scale,
    )
    return _empty(x, weight[0].size(2))


@implements("npu_grouped_matmul_swiglu_quant_v2", meta=_meta_v2)
def npu_grouped_matmul_swiglu_quant_v2(
    x, weight, weight_scale, x_scale, group_list, *, smooth_scale=None, weight_assist_matrix=None,
    bias=None, dequant_mode=0, dequant_dtype=0, quant_mode=0, quant_dtype=1, group_list_type=0,
    tuning_config=None, x_dtype=None, weight_dtype=None, weight_scale_dtype=None, x_scale_dtype=None,
):  # fmt: skip
    name = "npu_grouped_matmul_swiglu_quant_v2"
    refuse_given(
        name, smooth_scale=smooth_scale, weight_assist_matrix=weight_assist_matrix, bias=bias,
        x_dtype=x_dtype, weight_dtype=weight_dtype, weight_scale_dtype=weight_scale_dtype,
        x_scale_dtype=x_scale_dtype,
    )  # fmt: skip
    for what, mode in (("dequant_mode", dequant_mode), ("quant_mode", quant_mode)):
        require(mode in (None, 0), f"{name}: {what} is {mode}; allowed: 0 (each row).", "VALUE")
    return _run(
        name, x, _single(name, "weight", weight), _single(name, "weight_scale", weight_scale), x_scale,
        group_list, group_list_type or 0,
    )  # fmt: skip
