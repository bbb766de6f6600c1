# SPDX-License-Identifier: Apache-2.0
"""Quantisers to the MX formats: blocks of 32 numbers in fp8 or fp4 share an exponent."""

import torch
import torch.nn.functional as F

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import dtype_of, floating, refuse_given, require, wide
from torch_npu.ops._groups import ends_of, group_of_rows

_KINDS = (*lowp.FP8, *lowp.FP4)


class _Format:
    """The target of a quantisation, checked: dst_type, round_mode, scale_alg, dst_type_max."""

    def __init__(self, name, dst_type, round_mode, scale_alg, largest=0.0):
        self.kind = lowp.kind_of(dst_type, name, allowed=_KINDS)
        lowp.check_round_mode(round_mode, self.kind, name)
        self.alg, self.largest = scale_alg or 0, largest or 0.0
        require(
            self.alg in (0, 1, 2), f"{name}: scale_alg is {scale_alg}; allowed: 0, 1, 2.", "PARAM"
        )
        require(
            self.largest >= 0,
            f"{name}: dst_type_max is {largest}; it must not be negative.",
            "VALUE",
        )
        self.name, self.round_mode = name, round_mode

    def check(self, x, dims: int = 1) -> None:
        floating(self.name, input=x)
        require(
            x.dim() >= dims,
            f"{self.name}: the input has {x.dim()} dimensions; at least {dims} are needed.",
        )
        lowp.check_pairs(x, self.kind, self.name)

    def along(self, x, axis: int, low: float = 0.0, block: int = 32):
        return lowp.mx_quantise(
            x, axis, self.kind, self.alg, self.largest, self.round_mode, low, block
        )

    def both(self, x, ends=None):
        """(y1, scale1, y2, scale2): along -1 and along -2, there inside each group of rows."""
        return *self.along(x, -1), *(self.along(x, -2) if ends is None else self.groups(x, ends))

    def groups(self, x, ends):
        return lowp.mx_quantise_groups(x, ends, self.kind, self.alg, self.largest, self.round_mode)


def rounded_mx(name, y, dtype, dst_type, round_mode, scale_alg, dst_type_max=0.0):
    """(y, scale) along the last axis of results that are rounded to a dtype first."""
    form = _Format(name, dst_type, round_mode, scale_alg, dst_type_max)
    y = y.to(dtype)
    form.check(y)
    return form.along(y, -1)


@implements("npu_dynamic_mx_quant")
def npu_dynamic_mx_quant(
    input, *, axis=-1, round_mode="rint", dst_type=296, block_size=32, scale_alg=0,
    dst_type_max=0.0, max_low_bound=0.0,
):  # fmt: skip
    name = "npu_dynamic_mx_quant"
    form = _Format(name, dst_type, round_mode, scale_alg, dst_type_max)
    form.check(input)
    require(
        -input.dim() <= axis < input.dim(),
        f"{name}: Parameter axis is out of input dimension range [{-input.dim()}, {input.dim() - 1}], "
        f"but got {axis}.",
    )
    require(
        0 < block_size <= 1024 and block_size % 32 == 0,
        f"{name}: Parameter block_size must be divisible by 32 and no greater than 1024, greater than 0, "
        f"but got {block_size}.",
    )
    return form.along(input, axis, max_low_bound, block_size)


@implements("npu_dynamic_mx_quant_with_dual_axis")
def npu_dynamic_mx_quant_with_dual_axis(
    input, *, round_mode="rint", dst_type=296, scale_alg=0, dst_type_max=0.0
):
    form = _Format(
        "npu_dynamic_mx_quant_with_dual_axis", dst_type, round_mode, scale_alg, dst_type_max
    )
    form.check(input, 2)
    return form.both(input)


@implements("npu_dynamic_block_mx_quant")
def npu_dynamic_block_mx_quant(
    input, *, round_mode="rint", dst_type=296, scale_alg=0, dst_type_max=0.0
):
    form = _Format("npu_dynamic_block_mx_quant", dst_type, round_mode, scale_alg, dst_type_max)
    form.check(input, 2)
    x, (rows, columns) = wide(input), input.shape[-2:]
    top = lowp.block_max(lowp.block_max(x, -1, 32), -2, 32)
    byte = lowp.mx_bytes(top, form.kind, form.alg, form.largest)
    by_row = lowp.spread(byte, byte.dim() - 2, 32, rows)
    by_column = lowp.spread(byte, byte.dim() - 1, 32, columns)
    factor = lowp.powers(lowp.spread(by_row, byte.dim() - 1, 32, columns))
    y = lowp.encode(x / factor, form.kind, round_mode)
    return y, lowp.pair_scale(by_row, -1), lowp.pair_scale(by_column, -2)


@implements("npu_grouped_dynamic_mx_quant")
def npu_grouped_dynamic_mx_quant(
    x, group_index, *, round_mode="rint", dst_type=23, blocksize=32, scale_alg=0, dst_type_max=0.0
):
    name = "npu_grouped_dynamic_mx_quant"
    require(
        x.dim() == 2,
        f"{name}: Input x must be 2-dimensional, got dimNum {x.dim()}.",
        "VALUE",
    )
    require(
        blocksize == 32,
        f"{name}: Parameter blocksize only supports 32,  got {blocksize}.",
        "VALUE",
    )
    form = _Format(name, dst_type, round_mode, scale_alg, dst_type_max)
    form.check(x)
    return form.groups(x, ends_of(group_index, 0, x.size(0), name, "group_index"))


@implements("npu_dynamic_dual_level_mx_quant")
def npu_dynamic_dual_level_mx_quant(input, *, smooth_scale=None, round_mode="rint"):
    """The first scale brings 512 numbers into fp4's range, the second is shared by 32 of them."""
    name = "npu_dynamic_dual_level_mx_quant"
    refuse_given(name, smooth_scale=smooth_scale)
    form = _Format(name, lowp.E2M1, round_mode, 0)
    form.check(input)
    level0 = lowp.block_max(wide(input), -1, 512) / lowp.LARGEST[lowp.E2M1]
    each = lowp.spread(level0, input.dim() - 1, 512, input.size(-1))
    scaled = torch.where(each == 0, 0, wide(input) / each).to(input.dtype)
    y, level1 = form.along(scaled, -1)
    return y, level0.float(), level1


@implements("npu_anti_mx_quant")
def npu_anti_mx_quant(x, mxscale, *, axis=-1, dst_type=15, src_type=292):
    name = "npu_anti_mx_quant"
    kind = lowp.kind_of_tensor(x, src_type, name, "x", _KINDS)
    dtype = dtype_of(dst_type, torch.bfloat16, name)
    require(
        dtype in (torch.float16, torch.bfloat16, torch.float32),
        f"{name}: dst_type is {dst_type}; allowed: float16, bfloat16, float32.",
        "TYPE",
    )
    require(
        -x.dim() <= axis < x.dim(),
        f"{name}: axis is {axis}; x has {x.dim()} dimensions.",
    )
    shape = list(x.shape)
    shape[-1] *= 2 if kind in lowp.FP4 else 1
    shape[axis] = -(-shape[axis] // 64)
    lowp.check_scale(mxscale, name, "mxscale", [*shape, 2])
    return lowp.mx_dequantise(x, mxscale, axis, kind).to(dtype)


# ---- SwiGLU, then MX --------------------------------------------------------------------


def _halves(x, dim: int, left_first: bool, name: str):
    """(gated half, the other one)"""
    require(
        -x.dim() <= dim < x.dim() and x.size(dim) % 2 == 0,
        f"{name}: x has shape {list(x.shape)}; dimension {dim} must be there and divisible by 2.",
    )
    left, right = wide(x).chunk(2, dim)
    return (left, right) if left_first else (right, left)


def _group_ends(name, x, group_index, kind: int):
    if group_index is None:
        return None
    require(
        x.dim() == 2,
        f"{name}: x has {x.dim()} dimensions; with group_index allowed: 2.",
    )
    return ends_of(group_index, kind, x.size(0), name, "group_index")


def _only_grouped(y, ends):
    """Rows past the last group are 0."""
    if ends is None:
        return y
    inside = group_of_rows(ends, y.size(0)) < ends.numel()
    return torch.where(inside[:, None], y, 0)


@implements("npu_swiglu_mx_quant")
def npu_swiglu_mx_quant(
    x, *, group_index=None, activate_dim=-1, activate_left=False, swiglu_mode=0, clamp_limit=7.0,
    glu_alpha=1.702, glu_bias=1.0, group_mode=0, axis=-1, dst_type=296, round_mode="rint",
    scale_alg=0, max_dtype_value=0,
):  # fmt: skip
    name = "npu_swiglu_mx_quant"
    form = _Format(name, dst_type, round_mode, scale_alg, max_dtype_value)
    floating(name, x=x)
    for what, value in (("swiglu_mode", swiglu_mode), ("group_mode", group_mode)):
        require(value in (0, 1), f"{name}: {what} is {value}; allowed: 0, 1.", "VALUE")
    gate, other = _halves(x, activate_dim, activate_left, name)
    # group_mode 0 gives counts, 1 cumulative ends.
    ends = _group_ends(name, x, group_index, 1 - group_mode)
    require(
        ends is None or activate_dim in (-1, 1),
        f"{name}: activate_dim is {activate_dim}; with group_index allowed: -1.",
    )
    if swiglu_mode == 0:
        y = F.silu(gate) * other
    else:
        at = activate_dim % x.dim()
        gate, other = wide(x).unflatten(at, (-1, 2)).unbind(at + 1)
        gate, other = gate.clamp(max=clamp_limit), other.clamp(-clamp_limit, clamp_limit)
        y = gate * torch.sigmoid(glu_alpha * gate) * (other + glu_bias)
    form.check(y, 2)
    last = axis in (-1, y.dim() - 1)
    require(
        last or axis in (-2, y.dim() - 2),
        f"{name}: axis is {axis}; allowed: -1, -2.",
        "VALUE",
    )
    y = _only_grouped(y, ends)
    return form.along(y, axis) if last or ends is None else form.groups(y, ends)


def _dual(name, x, group_index, round_mode, scale_alg, dst_type, dst_type_max):
    form = _Format(name, dst_type, round_mode, scale_alg, dst_type_max)
    form.check(x, 2)
    return form, _group_ends(name, x, group_index, 0)


@implements("npu_swiglu_mx_quant_with_dual_axis")
def npu_swiglu_mx_quant_with_dual_axis(
    x, *, group_index=None, activate_left=True, round_mode="rint", scale_alg=1, dst_type=24,
    dst_type_max=0,
):  # fmt: skip
    name = "npu_swiglu_mx_quant_with_dual_axis"
    form, ends = _dual(name, x, group_index, round_mode, scale_alg, dst_type, dst_type_max)
    gate, other = _halves(x, -1, activate_left, name)
    y = _only_grouped(F.silu(gate) * other, ends)
    lowp.check_pairs(y, form.kind, name)
    return form.both(y, ends)


@implements("_npu_swiglu_backward_mx_quant_with_dual_axis")
def _npu_swiglu_backward_mx_quant_with_dual_axis(
    x, y_grad, *, group_index=None, activate_left=True, round_mode="rint", scale_alg=1, dst_type=24,
    dst_type_max=0,
):  # fmt: skip
    name = "_npu_swiglu_backward_mx_quant_with_dual_axis"
    form, ends = _dual(name, x, group_index, round_mode, scale_alg, dst_type, dst_type_max)
    require(
        x.size(-1) % 64 == 0,
        f"{name}: the last size of x is {x.size(-1)}; it must be a multiple of 64.",
    )
    gate, other = _halves(x, -1, activate_left, name)
    require(
        y_grad.shape == gate.shape,
        f"{name}: y_grad has shape {list(y_grad.shape)}; allowed: {list(gate.shape)}.",
    )
    grad, s = wide(y_grad), torch.sigmoid(gate)
    of_gate, of_other = grad * other * s * (1 + gate - gate * s), grad * gate * s
    parts = (of_gate, of_other) if activate_left else (of_other, of_gate)
    dx = _only_grouped(torch.cat(parts, -1).to(x.dtype), ends)
    return form.both(dx, ends)
