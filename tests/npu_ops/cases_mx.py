# SPDX-License-Identifier: Apache-2.0
"""Quantisers of the MX formats: one power of two for each block of 32."""

import torch
from low_formats import (
    blocks_max,
    cast,
    e8m0,
    ends_of,
    exponents,
    mx,
    mx_rows,
    mx_values,
    pairs,
    spread,
    stored,
)
from table import add, ints, rand

ONE = (torch.float32,)
SILU = torch.nn.functional.silu


# ---- MX of a tensor
def dynamic_mx(
    x, *, axis=-1, round_mode="rint", dst_type=296, block_size=32, scale_alg=0, dst_type_max=0.0,
    max_low_bound=0.0,
):  # fmt: skip
    return mx(x, axis, dst_type, scale_alg, dst_type_max, max_low_bound, round_mode, block_size)


_zero_block = rand(3, 96)
_zero_block[1, 32:64] = 0
for label, x, kwargs in (
    ("fp4", rand(3, 128), {}),
    ("fp4-zero-block", _zero_block, {}),
    ("fp4-part-of-a-block", rand(2, 3, 40), {}),
    ("fp4-e1m2", rand(3, 64), {"dst_type": 297}),
    ("fp4-round", rand(3, 64), {"round_mode": "round"}),
    ("fp4-floor", rand(3, 64), {"round_mode": "floor"}),
    ("fp4-alg2", rand(3, 64), {"scale_alg": 2}),
    ("fp4-alg2-max", rand(3, 64), {"scale_alg": 2, "dst_type_max": 7.0}),
    ("fp4-rows", rand(70, 6), {"axis": 0}),
    ("fp4-middle", rand(2, 40, 4), {"axis": -2}),
    ("fp4-wide-blocks", rand(3, 160), {"block_size": 64}),
    ("fp4-bound", rand(3, 64) / 16, {"max_low_bound": 1.0}),
    ("fp4-one-row", rand(64), {}),
    ("fp4-no-rows", rand(0, 64), {}),
    ("fp4-strided", rand(64, 3).t(), {}),
    ("e4m3", rand(3, 100), {"dst_type": 292}),
    ("e4m3-one", rand(1, 1), {"dst_type": 24}),
    ("e4m3-alg1", rand(3, 96), {"dst_type": 24, "scale_alg": 1}),
    ("e5m2", rand(3, 64), {"dst_type": 291}),
    ("e5m2-alg1", rand(65, 3), {"dst_type": 23, "scale_alg": 1, "axis": 0}),
):
    add("npu_dynamic_mx_quant", dynamic_mx, x, label=label, **kwargs)


def dual_axis(x, *, round_mode="rint", dst_type=296, scale_alg=0, dst_type_max=0.0):
    rest = dst_type, scale_alg, dst_type_max, 0.0, round_mode
    return *mx(x, -1, *rest), *mx(x, -2, *rest)


DUAL = "npu_dynamic_mx_quant_with_dual_axis"
add(DUAL, dual_axis, rand(40, 66), label="fp4")
add(DUAL, dual_axis, rand(2, 33, 64), label="three-dims", dst_type=24, scale_alg=1)
add(DUAL, dual_axis, rand(0, 64), label="no-rows", dst_type=291)


def block_mx(x, *, round_mode="rint", dst_type=296, scale_alg=0, dst_type_max=0.0):
    a = blocks_max(blocks_max(x, -1), -2)
    bytes_ = exponents(a, dst_type, scale_alg, dst_type_max)
    whole = spread(spread(bytes_, -2, 32, x.size(-2)), -1, 32, x.size(-1))
    y = stored(cast(x / e8m0(whole), dst_type, round_mode))
    rows, columns = spread(bytes_, -2, 32, x.size(-2)), spread(bytes_, -1, 32, x.size(-1))
    return y, pairs(rows, -1), pairs(columns, -2)


add("npu_dynamic_block_mx_quant", block_mx, rand(40, 100), label="fp4")
add("npu_dynamic_block_mx_quant", block_mx, rand(2, 64, 32), label="e4m3", dst_type=24)
add(
    "npu_dynamic_block_mx_quant",
    block_mx,
    rand(33, 64),
    label="alg2",
    scale_alg=2,
    dst_type_max=6.5,
)


def grouped_mx(
    x, group_index, *, round_mode="rint", dst_type=23, blocksize=32, scale_alg=0, dst_type_max=0.0
):
    return mx_rows(x, group_index.tolist(), dst_type, scale_alg, dst_type_max, round_mode)


GROUPED = "npu_grouped_dynamic_mx_quant"
add(GROUPED, grouped_mx, rand(150, 6), torch.tensor([70, 70, 131]), label="rest-of-rows")
add(GROUPED, grouped_mx, rand(96, 6), torch.tensor([33, 96]), label="e4m3", dst_type=24)
add(GROUPED, grouped_mx, rand(40, 5), ints(40, 41, 1, dtype=torch.int32), label="alg1", scale_alg=1)
add(GROUPED, grouped_mx, rand(0, 4), torch.tensor([0, 0]), label="no-rows")


def dual_level(x, *, round_mode="rint"):
    level0 = blocks_max(x, -1, 512) / 6
    inner = spread(level0, -1, 512, x.size(-1))
    t = torch.where(inner == 0, torch.zeros_like(x), x / inner)
    y, level1 = mx(t, -1, 296, mode=round_mode)
    return y, level0, level1


_long = rand(3, 1056)
_long[1] = 0
_long[:, 0] = 1.5  # a maximum that 6 divides exactly: no rounding before the second level
_long[:, 600], _long[:, 1040] = -1.5, 1.5
_long[1, 512:] = 0
add("npu_dynamic_dual_level_mx_quant", dual_level, _long.clamp(-1.5, 1.5), label="exact")
add("npu_dynamic_dual_level_mx_quant", dual_level, rand(2, 2, 64), label="rounded", dtypes=ONE)


# ---- MX back
def anti_mx(x, mxscale, *, axis=-1, dst_type=15, src_type=292):
    return mx_values(x, mxscale, axis, src_type)


def _mx_pair(x, axis, number):
    return mx(x, axis, number)


for label, x, axis, source, target in (
    ("e4m3", rand(3, 100), -1, 292, 6),
    ("e5m2-rows", rand(70, 3), -2, 291, 5),
    ("fp4", rand(3, 64), -1, 296, 6),
    ("fp4-rows", rand(65, 4), 0, 297, 6),
):
    add(
        "npu_anti_mx_quant", anti_mx, *_mx_pair(x, axis, source), label=label, axis=axis,
        dst_type=target, src_type=source, dtypes=ONE,
    )  # fmt: skip


# ---- swiglu and MX
def gated(x, dim=-1, left=True):
    a, b = x.chunk(2, dim)
    return SILU(a) * b if left else a * SILU(b)


def _with_rest(made, rows):
    """Zeros for rows that are not computed."""
    out = made.new_zeros(rows, *made.shape[1:])
    if made.dtype.itemsize == 1 and made.is_floating_point():
        out.view(torch.uint8)[: made.size(0)] = made.view(torch.uint8)
    else:
        out[: made.size(0)] = made
    if hasattr(made, "either"):
        out.either = torch.zeros(out.shape, dtype=torch.bool)
        out.either[: made.size(0)] = made.either
    return out


def swiglu_mx(
    x, *, group_index=None, activate_dim=-1, activate_left=False, swiglu_mode=0, clamp_limit=7.0,
    glu_alpha=1.702, glu_bias=1.0, group_mode=0, axis=-1, dst_type=296, round_mode="rint",
    scale_alg=0, max_dtype_value=0,
):  # fmt: skip
    if swiglu_mode == 0:
        v = gated(x, activate_dim, activate_left)
    else:
        a = x[..., ::2].clamp(max=clamp_limit)
        b = x[..., 1::2].clamp(-clamp_limit, clamp_limit)
        v = a * torch.sigmoid(glu_alpha * a) * (b + glu_bias)
    rest = dst_type, scale_alg, max_dtype_value
    if group_index is None:
        return mx(v, axis, *rest, mode=round_mode)
    ends = ends_of(group_index, group_mode == 0)
    if axis == -2:
        return mx_rows(v, ends, *rest, round_mode)
    y, scale = mx(v[: ends[-1]], axis, *rest, mode=round_mode)
    return _with_rest(y, v.size(0)), _with_rest(scale, v.size(0))


SWIGLU = "npu_swiglu_mx_quant"
for label, x, kwargs in (
    ("right", rand(3, 128), {}),
    ("left", rand(2, 3, 128), {"activate_left": True, "dst_type": 24, "scale_alg": 1}),
    ("clamped", rand(3, 192, low=-4), {"swiglu_mode": 1, "clamp_limit": 1.5, "dst_type": 291}),
    ("rows-of-halves", rand(6, 64), {"activate_dim": 0, "dst_type": 292}),
    ("counts", rand(7, 128), {"group_index": torch.tensor([2, 0, 3])}),
    ("ends", rand(7, 128), {"group_index": torch.tensor([2, 2, 7]), "group_mode": 1}),
    ("groups-of-rows", rand(100, 12), {"group_index": torch.tensor([40, 30]), "axis": -2}),
    ("columns", rand(70, 8), {"axis": -2, "dst_type": 24}),
    ("no-rows", rand(0, 128), {}),
):
    # No zeros: fp4 stores the sign of one, which depends on the order of a product.
    add(SWIGLU, swiglu_mx, x + 1 / 64, label=label, **kwargs)


def _both_axes(v, group_index, round_mode, scale_alg, dst_type, dst_type_max):
    rest = dst_type, scale_alg, dst_type_max
    if group_index is None:
        return *mx(v, -1, *rest, mode=round_mode), *mx(v, -2, *rest, mode=round_mode)
    ends = group_index.tolist()
    y, scale = mx(v[: ends[-1]], -1, *rest, mode=round_mode)
    along = _with_rest(y, v.size(0)), _with_rest(scale, v.size(0))
    return *along, *mx_rows(v, ends, *rest, round_mode)


def swiglu_dual(
    x, *, group_index=None, activate_left=True, round_mode="rint", scale_alg=1, dst_type=24,
    dst_type_max=0,
):  # fmt: skip
    v = gated(x, -1, activate_left)
    return _both_axes(v, group_index, round_mode, scale_alg, dst_type, dst_type_max)


def swiglu_dual_backward(
    x, y_grad, *, group_index=None, activate_left=True, round_mode="rint", scale_alg=1, dst_type=24,
    dst_type_max=0,
):  # fmt: skip
    x = x.clone().requires_grad_()
    (v,) = torch.autograd.grad(gated(x, -1, activate_left), x, y_grad)
    return _both_axes(v, group_index, round_mode, scale_alg, dst_type, dst_type_max)


for label, rows, kwargs in (
    ("plain", 40, {}),
    ("right", 70, {"activate_left": False, "dst_type": 23}),
    ("fp4", 33, {"dst_type": 296, "scale_alg": 0}),
    ("groups", 100, {"group_index": torch.tensor([40, 40, 90])}),
):
    add(
        f"{SWIGLU}_with_dual_axis",
        swiglu_dual,
        rand(rows, 128) + 1 / 64,
        label=label,
        **kwargs,
    )
    add(
        "_npu_swiglu_backward_mx_quant_with_dual_axis", swiglu_dual_backward, rand(rows, 128) + 1 / 64,
        rand(rows, 64) + 1 / 64, label=label, dtypes=ONE, **kwargs,
    )  # fmt: skip
