# SPDX-License-Identifier: Apache-2.0
"""Quantisers per block or group of rows, after a rotation, and SwiGLU with hifloat8 or fp8."""

import torch

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import INT4, dtype_of, floating, require, unsupported, wide
from torch_npu.ops._groups import ends_of, group_of_rows, group_places
from torch_npu.ops._int4 import pack_int4
from torch_npu.ops.quant_mx import rounded_mx

_BYTES = (lowp.HIF8, *lowp.FP8)


def _divide(x, scale):
    """x / scale, and 0 where the scale is 0."""
    return torch.where(scale == 0, 0, x / scale)


def _matrix(name: str, x) -> None:
    floating(name, x=x)
    require(x.dim() == 2, f"{name}: x has {x.dim()} dimensions; allowed: 2.")


@implements("npu_grouped_dynamic_block_quant")
def npu_grouped_dynamic_block_quant(
    x, group_list, *, min_scale=0.0, round_mode="rint", dst_type=291, row_block_size=1,
    col_block_size=128, group_list_type=0, dst_type_max=0.0,
):  # fmt: skip
    name = "npu_grouped_dynamic_block_quant"
    _matrix(name, x)
    kind = lowp.kind_of(dst_type, name, allowed=_BYTES)
    lowp.check_round_mode(round_mode, kind, name)
    for what, size in (("row_block_size", row_block_size), ("col_block_size", col_block_size)):
        require(size > 0, f"{name}: {what} is {size}; it must be positive.", "VALUE")
    require(min_scale >= 0, f"{name}: min_scale is {min_scale}; it must not be negative.", "VALUE")
    rows, columns = x.shape
    ends = ends_of(group_list, group_list_type, rows, name)
    place, inside = group_places(ends, rows, row_block_size, row_block_size)
    y = torch.where(inside[:, None], wide(x), 0)
    tops = lowp.block_max(y, 1, col_block_size)
    top = tops.new_zeros(rows // row_block_size + ends.numel(), tops.size(1))
    top = top.scatter_reduce(0, place[:, None].expand_as(tops), tops, "amax")
    largest = dst_type_max if kind == lowp.HIF8 and dst_type_max > 0 else lowp.LARGEST[kind]
    scale = top / largest
    scale = scale.clamp(max=1 / min_scale) if min_scale > 0 else scale
    each = lowp.spread(scale[place], 1, col_block_size, columns)
    return lowp.encode(_divide(y, each), kind, round_mode), scale.float()


def _row_scale(name, scale, ends, rows: int):
    """One scale for all rows, or the one of each row's group; rows past the last group get 0."""
    groups = 1 if ends is None else ends.numel()
    require(
        scale.numel() == groups,
        f"{name}: scale has shape {list(scale.shape)}; allowed: [{groups}].",
    )
    if ends is None:
        return wide(scale).reshape(1, 1)
    padded = torch.cat([wide(scale).flatten(), scale.new_zeros(1).to(wide(scale).dtype)])
    return padded[group_of_rows(ends, rows)][:, None]


def _group_max(x, ends):
    """The largest magnitude of a matrix, (1), or of each of its groups of rows."""
    size = x.abs()
    if ends is None:
        return size.amax().reshape(1) if x.numel() else size.new_zeros(1)
    each = size.amax(1) if x.size(1) else size.new_zeros(x.size(0))
    top = each.new_zeros(ends.numel() + 1)
    return top.scatter_reduce(0, group_of_rows(ends, x.size(0)), each, "amax")[:-1]


@implements("npu_quant_max")
def npu_quant_max(x, scale, *, round_mode="rint", dst_dtype=291, group_list=None):
    name = "npu_quant_max"
    floating(name, x=x, scale=scale)
    kind = lowp.kind_of(dst_dtype, name, "dst_dtype", _BYTES)
    lowp.check_round_mode(round_mode, kind, name)
    require(
        group_list is None or x.dim() >= 2,
        f"{name}: x has {x.dim()} dimensions; with group_list at least 2 are needed.",
    )
    if group_list is None:
        rows, ends = x.reshape(1, -1), None
    else:
        rows = x.flatten(1)
        ends = ends_of(group_list, 0, rows.size(0), name)
    y = wide(rows) * _row_scale(name, scale, ends, rows.size(0))
    return lowp.encode(y, kind, round_mode).reshape(x.shape), _group_max(rows, ends)


# ---- rotations --------------------------------------------------------------------------


def _integers(number, name: str):
    """int8 or int4 for a dst_dtype that means one, else None. 3 is int32, which holds eight int4."""
    if number is None:
        return torch.int8
    if number in (lowp.HIF8, *lowp.NUMBERS):
        return None
    kind = dtype_of(number, None, name, "dst_dtype")
    kind = INT4 if kind == torch.int32 else kind
    require(
        kind in (torch.int8, INT4),
        f"{name}: dst_dtype is {number}; allowed: int8, int4, fp8, fp4.",
        "TYPE",
    )
    return kind


@implements("npu_rotate_quant")
def npu_rotate_quant(
    x, rotation, *, alpha=None, dst_dtype=None, axis=-1, round_mode="rint", scale_alg=0,
    dst_type_max=0.0, transpose_y=False,
):  # fmt: skip
    name = "npu_rotate_quant"
    _matrix(name, x)
    floating(name, rotation=rotation)
    if transpose_y:
        unsupported(f"{name}: transpose_y True is not supported here: transpose y yourself.")
    require(axis in (-1, 1), f"{name}: axis is {axis}; allowed: -1.", "VALUE")
    size = rotation.size(-1)
    blocks = x.size(1) // max(size, 1)
    require(
        rotation.dim() in (2, 3)
        and rotation.size(-2) == size
        and size * blocks == x.size(1)
        and (rotation.dim() == 2 or rotation.size(0) == blocks),
        f"{name}: rotation has shape {list(rotation.shape)}; it is square, or one square for each block of "
        f"x's {x.size(1)} columns.",
    )
    integers = _integers(dst_dtype, name)
    turned = wide(x).unflatten(1, (blocks, size)).transpose(0, 1) @ wide(rotation)
    turned = turned.transpose(0, 1).flatten(1).to(x.dtype)
    if integers is not None:
        number = None if integers == torch.int8 else INT4
        return torch.ops.npu.npu_dynamic_quant(turned, dst_type=number)
    if alpha is not None:
        y, part = wide(turned), wide(alpha).reshape(())
        top = lowp.block_max(y, 1, 32) * torch.where((part > 0) & (part < 1), part, 1)
        limit = lowp.spread(top, 1, 32, y.size(1))
        turned = torch.minimum(torch.maximum(y, -limit), limit)
    return rounded_mx(name, turned, turned.dtype, dst_dtype, round_mode, scale_alg, dst_type_max)


@implements("npu_kronecker_quant")
def npu_kronecker_quant(
    x, kronecker_p1, kronecker_p2, clip_ratio=None, dst_dtype=None, dst_type_max=None
):
    name = "npu_kronecker_quant"
    floating(name, x=x, kronecker_p1=kronecker_p1, kronecker_p2=kronecker_p2)
    require(x.dim() == 3, f"{name}: x has {x.dim()} dimensions; allowed: 3.")
    for what, p, size in (
        ("kronecker_p1", kronecker_p1, x.size(1)),
        ("kronecker_p2", kronecker_p2, x.size(2)),
    ):
        require(
            list(p.shape) == [size, size],
            f"{name}: {what} has shape {list(p.shape)}; allowed: [{size}, {size}].",
        )
    clip = 1.0 if clip_ratio is None else clip_ratio
    require(0 < clip <= 1, f"{name}: clip_ratio is {clip}; allowed: 0 < x <= 1.", "VALUE")
    turned = wide(kronecker_p1) @ (wide(x) @ wide(kronecker_p2))
    if dst_dtype in lowp.NUMBERS:
        alg = 2 if dst_type_max else 0
        flat = turned.flatten(1)
        lowp.kind_of(dst_dtype, name, "dst_dtype", (lowp.E2M1,))
        return rounded_mx(name, flat, flat.dtype, dst_dtype, "rint", alg, dst_type_max)
    integers = INT4 if dst_dtype is None else _integers(dst_dtype, name)
    require(
        integers == INT4,
        f"{name}: dst_dtype is {dst_dtype}; allowed: int4, float4_e2m1fn_x2.",
        "TYPE",
    )
    top = turned.abs().flatten(1)
    scale = (top.amax(1) if top.size(1) else top.sum(1)) / (7 * clip)
    y = _divide(turned, scale[:, None, None]).to(torch.float16).float()
    return pack_int4(torch.clamp(torch.round(y), -8, 7), name), scale.float()


# ---- SwiGLU -----------------------------------------------------------------------------


def _swiglu(x, clamp_limit: float):
    """(gate, other, their product), cut where a limit is given."""
    gate, other = wide(x).chunk(2, -1)
    if clamp_limit > 0:
        gate, other = gate.clamp(max=clamp_limit), other.clamp(-clamp_limit, clamp_limit)
    return gate, other, gate * torch.sigmoid(gate) * other


def _rows_weight(name, x, weight):
    """The weight of each row as a column; None without."""
    if weight is None:
        return None
    require(
        weight.numel() == x.size(0),
        f"{name}: weight has shape {list(weight.shape)}; x has {x.size(0)} rows.",
    )
    return wide(weight).reshape(-1, 1)


def _check_halves(name, x) -> None:
    _matrix(name, x)
    require(x.size(1) % 2 == 0, f"{name}: x has {x.size(1)} columns; their number must be even.")


def _group_quantised(name, v, ends, scale, kind, mode, block_size, round_scale, largest):
    """(y, y_scale) of rows that are 0 past the last group."""
    if mode == 0:
        block = block_size or 128
        y_scale = lowp.block_max(v, 1, block).clamp(min=1e-4) / lowp.LARGEST[kind]
        y_scale = torch.exp2(torch.ceil(torch.log2(y_scale))) if round_scale else y_scale
        y = lowp.encode(v / lowp.spread(y_scale, 1, block, v.size(1)), kind)
        return y, y_scale.float()
    if mode == 1:
        return lowp.mx_quantise(v, -1, kind)
    if mode == 2:
        require(scale is not None, f"{name}: scale must be given with quant_mode 2.")
        y = v * _row_scale(name, scale, ends, v.size(0))
        return lowp.encode(y, kind), v.new_empty(0, dtype=torch.float32)
    y_scale = _group_max(v, ends).clamp(min=1e-8) / largest
    factor = _row_scale(name, y_scale, ends, v.size(0))
    return lowp.encode(_divide(v, factor), kind), y_scale.float()


@implements("npu_swiglu_group_quant")
def npu_swiglu_group_quant(
    x, *, weight=None, group_index=None, scale=None, dst_type=291, quant_mode=0, block_size=0,
    round_scale=False, clamp_limit=-1.0, dst_type_max=15.0, output_origin=False,
):  # fmt: skip
    name = "npu_swiglu_group_quant"
    _check_halves(name, x)
    require(
        quant_mode in range(4), f"{name}: quant_mode is {quant_mode}; allowed: 0 to 3.", "VALUE"
    )
    require(
        block_size >= 0, f"{name}: block_size is {block_size}; it must not be negative.", "VALUE"
    )
    require(
        dst_type_max > 0, f"{name}: dst_type_max is {dst_type_max}; it must be positive.", "VALUE"
    )
    allowed = (lowp.FP8, lowp.FP8, _BYTES, _BYTES)[quant_mode]
    kind = lowp.kind_of(dst_type, name, allowed=allowed)
    ends = None if group_index is None else ends_of(group_index, 1, x.size(0), name, "group_index")
    factor = _rows_weight(name, x, weight)
    v = _swiglu(x, clamp_limit)[2]
    v = v if factor is None else v * factor
    rows = v.detach()
    if ends is not None:
        rows = torch.where((group_of_rows(ends, x.size(0)) < ends.numel())[:, None], rows, 0)
    y, y_scale = _group_quantised(
        name, rows, ends, scale, kind, quant_mode, block_size, round_scale, dst_type_max
    )
    return y, y_scale, v.to(x.dtype) if output_origin else x.new_empty(0)


@implements("npu_swiglu_group_quant_backward")
def npu_swiglu_group_quant_backward(
    grad_y, x, *, weight=None, y_origin=None, group_index=None, clamp_limit=0.0
):
    name = "npu_swiglu_group_quant_backward"
    _check_halves(name, x)
    floating(name, grad_y=grad_y, y_origin=y_origin)
    half = [x.size(0), x.size(1) // 2]
    for what, t in (("grad_y", grad_y), ("y_origin", y_origin)):
        require(
            t is None or list(t.shape) == half,
            f"{name}: {what} has shape {None if t is None else list(t.shape)}; allowed: {half}.",
        )
    require(
        weight is None or y_origin is not None,
        f"{name}: y_origin must be given with weight: weight's gradient is made of it.",
    )
    factor, grad = _rows_weight(name, x, weight), wide(grad_y)
    gate, other, _ = _swiglu(x, clamp_limit)
    g, s = grad if factor is None else grad * factor, torch.sigmoid(gate)
    dx = [g * other * s * (1 + gate * (1 - s)), g * gate * s]
    if clamp_limit > 0:
        left, right = wide(x).chunk(2, -1)
        dx = [
            torch.where(left < clamp_limit, dx[0], 0),
            torch.where(right.abs() < clamp_limit, dx[1], 0),
        ]
    dx = torch.cat(dx, -1)
    dweight = None if weight is None else (grad * wide(y_origin)).sum(-1)
    if group_index is not None:
        ends = ends_of(group_index, 1, x.size(0), name, "group_index")
        inside = group_of_rows(ends, x.size(0)) < ends.numel()
        dx = torch.where(inside[:, None], dx, 0)
        dweight = None if dweight is None else torch.where(inside, dweight, 0)
    if dweight is None:
        return dx.to(x.dtype), x.new_empty(0)
    return dx.to(x.dtype), dweight.reshape(weight.shape).to(weight.dtype)
