# SPDX-License-Identifier: Apache-2.0
"""Matrix products with an all-to-all exchange of rows before them or of columns after them."""

import torch

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import refuse_given, require, same_dtype, shapes, wide
from torch_npu.ops._exchange import group_of, swap_chunks, swap_rows
from torch_npu.ops._operands import (
    columns_of,
    numbers,
    output_dtype,
    weight_columns,
    weight_numbers,
)

_REFUSED = ("common_scale", "x1_offset", "x2_offset", "common_quant_mode", "comm_quant_dtype", "output_scale_dtype",
            "comm_scale_dtype")  # fmt: skip


def _check_matrices(name, x1, x2, world_size, axes, allowed_axes) -> None:
    for what, x in (("x1", x1), ("x2", x2)):
        require(x.dim() == 2, f"{name}: {what}_dim should be 2, but now it is {x.dim()}.", "VALUE")
    require(world_size != 0, f"{name}: world_size should not be 0.", "VALUE")
    require(
        axes is None or list(axes) == allowed_axes,
        f"{name}: all2all_axes is {axes}; allowed: None, {allowed_axes}.",
        "VALUE",
    )


def _check_rows(name, x1, world_size) -> None:
    require(
        x1.size(0) % world_size == 0,
        f"{name}: The x1 first-axis should be divisible by world_size. It is {x1.size(0)}, world_size {world_size}.",
        "VALUE",
    )


def _check_columns(name, columns: int, world_size) -> None:
    require(
        columns % world_size == 0,
        f"{name}: x2 has {columns} columns; they must be a multiple of world_size {world_size}.",
        "VALUE",
    )


def _plain(name, x1, x2, bias, depth: int) -> None:
    same_dtype(name, x1=x1, x2=x2)
    require(
        x2.size(0) == depth,
        f"{name}: x2 has shape {list(x2.shape)}; its rows must be {depth}.",
    )
    shapes(name, bias=(bias, (x2.size(1),)))


def _linear(x, weight, bias):
    if bias is None:
        return x @ weight
    return (wide(x) @ wide(weight) + wide(bias)).to(x.dtype)


def _matmul_after_meta(x1, x2, hcom, world_size, bias=None, all2all_axes=None, all2all_out_flag=True,
                       comm_mode=None):  # fmt: skip
    name = "npu_all_to_all_matmul"
    _check_matrices(name, x1, x2, world_size, all2all_axes, [-2, -1])
    _check_rows(name, x1, world_size)
    _plain(name, x1, x2, bias, x1.size(1) * world_size)
    rows = x1.size(0) // world_size
    moved = (rows, x2.size(0)) if all2all_out_flag else (0,)
    return x1.new_empty(rows, x2.size(1)), x1.new_empty(moved)


@implements("npu_all_to_all_matmul", meta=_matmul_after_meta)
def npu_all_to_all_matmul(
    x1, x2, hcom, world_size, bias=None, all2all_axes=None, all2all_out_flag=True, comm_mode=None
):
    name = "npu_all_to_all_matmul"
    _check_matrices(name, x1, x2, world_size, all2all_axes, [-2, -1])
    _check_rows(name, x1, world_size)
    _plain(name, x1, x2, bias, x1.size(1) * world_size)
    moved = swap_chunks(x1, group_of(name, hcom, world_size))
    return _linear(moved, x2, bias), moved if all2all_out_flag else x1.new_empty(0)


def _swap_columns(y, group):
    """Chunk r of the columns goes to rank r; received rows stand one rank after another."""
    ranks = group.size()
    parts = y.unflatten(1, (ranks, y.size(1) // ranks)).transpose(0, 1)
    return swap_rows(parts.flatten(0, 1), group)


def _matmul_before_meta(x1, x2, hcom, world_size, bias=None, all2all_axes=None, comm_mode=None):
    name = "npu_matmul_all_to_all"
    _check_matrices(name, x1, x2, world_size, all2all_axes, [-1, -2])
    _plain(name, x1, x2, bias, x1.size(1))
    _check_columns(name, x2.size(1), world_size)
    return x1.new_empty(x1.size(0) * world_size, x2.size(1) // world_size)


@implements("npu_matmul_all_to_all", meta=_matmul_before_meta)
def npu_matmul_all_to_all(x1, x2, hcom, world_size, bias=None, all2all_axes=None, comm_mode=None):
    name = "npu_matmul_all_to_all"
    _check_matrices(name, x1, x2, world_size, all2all_axes, [-1, -2])
    _plain(name, x1, x2, bias, x1.size(1))
    _check_columns(name, x2.size(1), world_size)
    return _swap_columns(_linear(x1, x2, bias), group_of(name, hcom, world_size))


# ---- quantised --------------------------------------------------------------------------


def _check_quant(name, x1, x2, world_size, axes, allowed_axes, mode, modes, depth, options) -> int:
    """The columns of x2."""
    refuse_given(name, **{k: options.get(k) for k in _REFUSED})
    _check_matrices(name, x1, x2, world_size, axes, allowed_axes)
    require(
        mode in modes,
        f"{name}: x1_quant_mode is {mode}; allowed: {', '.join(map(str, modes))}.",
        "VALUE",
    )
    wanted = 6 if mode == 6 else 2
    require(
        options.get("x2_quant_mode") == wanted,
        f"{name}: x2_quant_mode is {options.get('x2_quant_mode')}; with x1_quant_mode {mode} allowed: {wanted}.",
        "VALUE",
    )
    scale = options.get("x2_scale")
    require(scale is not None, f"{name}: x2_scale must be given.")
    require(
        lowp.is_mx(scale) == (mode == 6),
        f"{name}: x2_scale is {scale.dtype}; mode 6 needs e8m0 bytes (uint8, float8_e8m0fnu), the others numbers.",
        "TYPE",
    )
    columns = weight_columns(name, "x2", x2, scale, depth, options.get("x2_dtype"))
    if mode != 6:
        shapes(name, x2_scale=(scale.flatten(), (columns,)))
    shapes(name, bias=(options.get("bias"), (columns,)))
    return columns


def _row_scale(name, x1, mode, columns: int, scale) -> None:
    """The scale of quantised rows: one number a row (3), or MX (6)."""
    require(scale is not None, f"{name}: x1_scale must be given with x1_quant_mode {mode}.")
    shape = (x1.size(0),) if mode == 3 else (x1.size(0), -(-columns // 64), 2)
    shapes(name, x1_scale=(scale.flatten() if mode == 3 else scale, shape))
    require(
        lowp.is_mx(scale) == (mode == 6),
        f"{name}: x1_scale is {scale.dtype}; mode 6 needs e8m0 bytes (uint8, float8_e8m0fnu), mode 3 numbers.",
        "TYPE",
    )


def _dequantised(name, x, scale, mode, columns: int, number):
    """Rows (…, columns) times their scales."""
    y = numbers(name, "x1", x, number)
    if mode == 6:
        return y * lowp.mx_factor(scale, x.dim() - 1, columns)
    return y * scale.float().unsqueeze(-1)


def _product(name, a, x2, options):
    scale = options["x2_scale"]
    b = weight_numbers(name, "x2", x2, scale, a.size(-1), options.get("x2_dtype"))
    y = a @ b
    y = y if lowp.is_mx(scale) else y * scale.float().flatten()
    bias = options.get("bias")
    y = y if bias is None else y + bias.float()
    return y.to(output_dtype(name, options.get("y_dtype"), torch.float32))


def _quantised_rows(name, p, smooth, number):
    """Rows rounded to fp8 at the scale of their maximum; rows of zeros have scale 1."""
    kind = lowp.E5M2 if number is None else lowp.kind_of(number, name, "x1_quant_dtype", lowp.FP8)
    y = p.float() if smooth is None else p.float() * smooth.float()
    scale = y.abs().amax(-1, keepdim=True) / lowp.LARGEST[kind]
    scale = torch.where(scale == 0, 1.0, scale)
    return lowp.through(y / scale, kind) * scale


def _check_after(name, x1, x2, world_size, all2all_axes, mode, options) -> int:
    columns = columns_of(x1, options.get("x1_dtype"))
    found = _check_quant(
        name, x1, x2, world_size, all2all_axes, [-2, -1], mode, (3, 6, 7), columns * world_size, options
    )  # fmt: skip
    _check_rows(name, x1, world_size)
    if mode == 7:
        shapes(name, x1_scale=(options.get("x1_scale"), (columns * world_size,)))
        require(
            x1.dtype in (torch.float16, torch.bfloat16, torch.float32),
            f"{name}: x1 is {x1.dtype}; with x1_quant_mode 7 allowed: float16, bfloat16, float32.",
            "TYPE",
        )
    else:
        _row_scale(name, x1, mode, columns, options.get("x1_scale"))
    return found


def _quant_after_meta(
    x1,
    x2,
    hcom,
    world_size,
    *,
    all2all_out_flag=True,
    all2all_axes=None,
    x1_quant_mode=None,
    **options,
):
    name = "npu_all_to_all_quant_matmul"
    columns = _check_after(name, x1, x2, world_size, all2all_axes, x1_quant_mode, options)
    rows = x1.size(0) // world_size
    dtype = output_dtype(name, options.get("y_dtype"), torch.float32)
    moved = (rows, x1.size(1) * world_size) if all2all_out_flag else (0,)
    return x1.new_empty(rows, columns, dtype=dtype), x1.new_empty(moved)


@implements("npu_all_to_all_quant_matmul", meta=_quant_after_meta)
def npu_all_to_all_quant_matmul(
    x1,
    x2,
    hcom,
    world_size,
    *,
    all2all_out_flag=True,
    all2all_axes=None,
    x1_quant_mode=None,
    **options,
):
    """x1_quant_mode 7 quantises the exchanged rows; with 3 and 6 the scales travel with their rows."""
    name, mode = "npu_all_to_all_quant_matmul", x1_quant_mode
    _check_after(name, x1, x2, world_size, all2all_axes, mode, options)
    group, scale = group_of(name, hcom, world_size), options.get("x1_scale")
    moved = swap_chunks(x1, group)
    if mode == 7:
        a = _quantised_rows(name, moved, scale, options.get("x1_quant_dtype"))
    else:
        scale = scale.reshape(x1.size(0), -1)
        scales = swap_chunks(scale, group).unflatten(1, (group.size(), -1))
        scales = scales.squeeze(-1) if mode == 3 else scales.unflatten(-1, (-1, 2))
        parts = moved.unflatten(1, (group.size(), -1))
        each = columns_of(x1, options.get("x1_dtype"))
        a = _dequantised(name, parts, scales, mode, each, options.get("x1_dtype")).flatten(1)
    return _product(name, a, x2, options), moved if all2all_out_flag else x1.new_empty(0)


def _check_before(name, x1, x2, world_size, options) -> int:
    """The columns of x2."""
    mode, axes = options["x1_quant_mode"], options["all2all_axes"]
    depth = columns_of(x1, options["x1_dtype"])
    found = _check_quant(name, x1, x2, world_size, axes, [-1, -2], mode, (3, 6), depth, options)
    _row_scale(name, x1, mode, depth, options["x1_scale"])
    _check_columns(name, found, world_size)
    return found


def _before_options(
    bias=None, x1_scale=None, x2_scale=None, common_scale=None, x1_offset=None, x2_offset=None,
    x1_quant_mode=None, x2_quant_mode=None, common_quant_mode=None, group_sizes=None, all2all_axes=None,
    comm_quant_dtype=None, x1_dtype=None, x2_dtype=None, x1_scale_dtype=None, x2_scale_dtype=None,
    output_scale_dtype=None, comm_scale_dtype=None, y_dtype=None, comm_mode=None,
):  # fmt: skip
    """The operator's arguments after world_size, in the order of its schema."""
    return locals()


def _quant_before_meta(x1, x2, hcom, world_size, *rest, **named):
    name, options = "npu_quant_matmul_all_to_all", _before_options(*rest, **named)
    columns = _check_before(name, x1, x2, world_size, options)
    dtype = output_dtype(name, options["y_dtype"], torch.float32)
    return x1.new_empty(x1.size(0) * world_size, columns // world_size, dtype=dtype)


@implements("npu_quant_matmul_all_to_all", meta=_quant_before_meta)
def npu_quant_matmul_all_to_all(x1, x2, hcom, world_size, *rest, **named):
    name, options = "npu_quant_matmul_all_to_all", _before_options(*rest, **named)
    _check_before(name, x1, x2, world_size, options)
    mode, scale, number = (options[k] for k in ("x1_quant_mode", "x1_scale", "x1_dtype"))
    scale = scale.flatten() if mode == 3 else scale
    a = _dequantised(name, x1, scale, mode, columns_of(x1, number), number)
    return _swap_columns(_product(name, a, x2, options), group_of(name, hcom, world_size))
