# SPDX-License-Identifier: Apache-2.0
"""Matrices of any format as numbers: floats, int8, int4 in int32, fp8, hifloat8, fp4, with their scales."""

import torch

from torch_npu.ops import _lowp as lowp
from torch_npu.ops._check import dtype_of, require, wide
from torch_npu.ops._int4 import unpack_int4

_PLAIN = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def one_number(name: str, **scales) -> None:
    for what, scale in scales.items():
        require(
            scale is not None and scale.numel() == 1,
            f"{name}: {what} has shape {None if scale is None else list(scale.shape)}; allowed: one number.",
        )


def numbers(name: str, argument: str, x: torch.Tensor, number=None) -> torch.Tensor:
    """`number`: the dtype's, which says what uint8 holds."""
    if x.dtype in _PLAIN or x.dtype == torch.int8:
        return wide(x)
    if x.dtype == torch.int32:
        return unpack_int4(x).float()
    return lowp.decode(x, lowp.kind_of_tensor(x, number, name, argument))


def columns_of(x: torch.Tensor, number=None) -> int:
    """How many numbers the last dimension holds."""
    if x.dtype == torch.int32:
        return x.size(-1) * 8
    packed = x.dtype == torch.float4_e2m1fn_x2 or lowp.NUMBERS.get(number) in lowp.FP4
    return x.size(-1) * 2 if packed else x.size(-1)


def _packed_rows(w, number) -> bool:
    """fp4 weights are packed along K, the last dimension of their memory."""
    return w.dtype == torch.float4_e2m1fn_x2 or lowp.NUMBERS.get(number) in lowp.FP4


def weight_columns(name: str, argument: str, w, scale, depth: int, number=None) -> int:
    """N of a weight (…, K, N); with MX scales it may lie (…, N, K)."""
    by = 2 if _packed_rows(w, number) else 1
    rows, columns = w.size(-2), columns_of(w) if by == 1 else w.size(-1)
    turned = lowp.is_mx(scale) and rows * by != depth and columns * by == depth
    require(
        turned or rows * by == depth,
        f"{name}: {argument} has shape {list(w.shape)}; its rows must be {depth}, the other matrix's columns.",
    )
    columns = rows if turned else columns
    if lowp.is_mx(scale):
        usual, other = _mx_shapes(w, depth, columns)
        require(
            list(scale.shape) in (usual, other),
            f"{name}: the scale of {argument} has shape {list(scale.shape)}; allowed: {usual}, {other}.",
        )
    return columns


def _mx_shapes(w, depth: int, columns: int):
    lead, pairs = list(w.shape[:-2]), -(-depth // 64)
    return [*lead, pairs, columns, 2], [*lead, columns, pairs, 2]


def weight_numbers(name: str, argument: str, w, scale, depth: int, number=None) -> torch.Tensor:
    """(…, K, N) of a weight that `weight_columns` accepts; MX scales are applied, others are not."""
    columns = weight_columns(name, argument, w, scale, depth, number)
    if not lowp.is_mx(scale):
        return numbers(name, argument, w, number)
    if _packed_rows(w, number):
        turned = w.size(-2) * 2 != depth
        y = numbers(name, argument, w if turned else w.transpose(-1, -2).contiguous(), number)
        y = y.transpose(-1, -2)
    else:
        y = numbers(name, argument, w, number)
        y = y if y.size(-2) == depth else y.transpose(-1, -2)
    if list(scale.shape) != _mx_shapes(w, depth, columns)[0]:
        scale = scale.transpose(-2, -3)
    return y * lowp.mx_factor(scale, w.dim() - 2, depth)


def output_dtype(name: str, number, default, argument: str = "y_dtype"):
    kind = dtype_of(number, default, name, argument)
    require(
        kind in _PLAIN[:3],
        f"{name}: {argument} is {number}; allowed: float16, bfloat16, float32.",
        "TYPE",
    )
    return kind
