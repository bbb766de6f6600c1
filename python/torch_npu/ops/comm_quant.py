# SPDX-License-Identifier: Apache-2.0
"""Products of quantised matrices with rows gathered before, or sums scattered after them."""

import torch

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import refuse_given, require, shapes, unsupported
from torch_npu.ops._exchange import gather_rows, group_of, scatter_sum
from torch_npu.ops._operands import (
    columns_of,
    numbers,
    one_number,
    output_dtype,
    weight_columns,
    weight_numbers,
)

_BLOCK = 128


class _Product:
    """How the scales of x1 and x2 apply: none, one number each, blocks of 128, or MX."""

    def __init__(self, name, x1, x2, options):
        self.name, self.x2, self.options = name, x2, options
        s1, s2 = options.get("x1_scale"), options.get("x2_scale")
        require(
            (s1 is None) == (s2 is None),
            f"{name}: x1_scale and x2_scale are given together; one is {None if s1 is None else list(s1.shape)}, the "
            f"other {None if s2 is None else list(s2.shape)}.",
        )
        for what, x in (("x1", x1), ("x2", x2)):
            require(
                x.dim() == 2, f"{name}: {what}_dim should be 2, but now it is {x.dim()}.", "VALUE"
            )
        self.depth = columns_of(x1, options.get("x1_dtype"))
        # Wrong arguments raise before anything is sent.
        self.columns = weight_columns(name, "x2", x2, s2, self.depth, options.get("x2_dtype"))
        rows, deep, wide_ = (
            -(-x1.size(0) // _BLOCK),
            -(-self.depth // _BLOCK),
            -(-self.columns // _BLOCK),
        )
        self.kind = (
            "none"
            if s1 is None
            else "mx"
            if lowp.is_mx(s1)
            else "one"
            if s1.numel() == 1
            else "blocks"
        )
        if self.kind == "mx":
            shapes(name, x1_scale=(s1, (x1.size(0), -(-self.depth // 64), 2)))
            require(
                lowp.is_mx(s2),
                f"{name}: x2_scale is {s2.dtype}; with an MX x1_scale it holds e8m0 bytes, too.",
            )
        elif self.kind == "one":
            one_number(name, x1_scale=s1, x2_scale=s2)
        elif self.kind == "blocks":
            shapes(name, x1_scale=(s1, (rows, deep)))
            shapes(name, x2_scale=(s2, (deep, wide_)))
        shapes(name, bias=(options.get("bias"), (self.columns,)))

    def row_scales(self, x1):
        """What multiplies the rows of x1, as rows that travel with them; None for one number."""
        scale = self.options.get("x1_scale")
        if self.kind == "blocks":
            return scale.float().repeat_interleave(_BLOCK, 0)[: x1.size(0)].contiguous()
        return scale if self.kind == "mx" else None

    def of(self, x1, row_scales):
        """x1 · x2 in float32, without bias and single numbers."""
        options = self.options
        a = numbers(self.name, "x1", x1, options.get("x1_dtype"))
        s2 = options.get("x2_scale")
        b = weight_numbers(self.name, "x2", self.x2, s2, self.depth, options.get("x2_dtype"))
        if self.kind == "mx":
            a = a * lowp.mx_factor(row_scales, 1, self.depth)
        elif self.kind == "blocks":
            a = a * lowp.spread(row_scales, 1, _BLOCK, self.depth)
            rows = lowp.spread(s2.float(), 0, _BLOCK, self.depth)
            b = b * lowp.spread(rows, 1, _BLOCK, self.columns)
        return a @ b

    def factor(self):
        scales = self.options.get("x1_scale"), self.options.get("x2_scale")
        return (
            scales[0].float().reshape(()) * scales[1].float().reshape(())
            if self.kind == "one"
            else None
        )


def _stored(y, dtype):
    return lowp.encode(y, dtype) if dtype in lowp.FP8 else y.to(dtype)


def _result_dtype(name, x, number):
    """y_dtype, or the input's own."""
    return x.dtype if number is None else output_dtype(name, number, None)


def _check(name, x, options) -> None:
    refuse_given(name, quant_scale=options.get("quant_scale"))
    if options.get("amax_output"):
        unsupported(f"{name}: amax_output True is not supported here; allowed: False.")
    dtype = _result_dtype(name, x, options.get("y_dtype"))
    require(
        dtype.is_floating_point,
        f"{name}: y_dtype must be given for an input of {x.dtype}; allowed: float16, bfloat16, float32.",
        "TYPE",
    )
    sizes = options.get("group_sizes")
    require(
        not sizes or all(n in (0, 1, 32, _BLOCK) for n in sizes),
        f"{name}: group_sizes is {sizes}; allowed: None, [128, 128, 128], or [1, 1, 32] for MX.",
        "VALUE",
    )


def _gather_meta(input, x2, hcom, world_size, *, gather_output=True, **options):
    name = "npu_all_gather_quant_mm"
    _check(name, input, options)
    product = _Product(name, input, x2, options)
    rows = input.size(0) * world_size
    dtype = _result_dtype(name, input, options.get("y_dtype"))
    gathered = input.new_empty(rows, input.size(1)) if gather_output else input.new_empty(0)
    return (
        input.new_empty(rows, product.columns, dtype=dtype),
        gathered,
        input.new_empty(0, dtype=torch.float32),
    )


@implements("npu_all_gather_quant_mm", meta=_gather_meta)
def npu_all_gather_quant_mm(
    input, x2, hcom, world_size, *, gather_output=True, gather_index=0, **options
):
    """(y, gathered rows, empty); single scales multiply the bias, too."""
    name = "npu_all_gather_quant_mm"
    _check(name, input, options)
    require(gather_index == 0, f"{name}: gather_index is {gather_index}; allowed: 0.", "VALUE")
    product = _Product(name, input, x2, options)
    group = group_of(name, hcom, world_size)
    gathered = gather_rows(input, group)
    scales = product.row_scales(input)
    y = product.of(gathered, None if scales is None else gather_rows(scales, group))
    bias, factor = options.get("bias"), product.factor()
    y = y if bias is None else y + bias.float()
    y = y if factor is None else y * factor
    y = _stored(y, _result_dtype(name, input, options.get("y_dtype")))
    return (
        y,
        gathered if gather_output else input.new_empty(0),
        input.new_empty(0, dtype=torch.float32),
    )


def _scatter_meta(input, x2, hcom, world_size, **options):
    name = "npu_quant_mm_reduce_scatter"
    _check(name, input, options)
    product = _Product(name, input, x2, options)
    dtype = _result_dtype(name, input, options.get("y_dtype"))
    y = input.new_empty(input.size(0) // world_size, product.columns, dtype=dtype)
    return y, input.new_empty(0, dtype=torch.float32)


@implements("npu_quant_mm_reduce_scatter", meta=_scatter_meta)
def npu_quant_mm_reduce_scatter(input, x2, hcom, world_size, *, reduce_op="sum", **options):
    """Every rank adds its bias before the sum, which is in float32."""
    name = "npu_quant_mm_reduce_scatter"
    _check(name, input, options)
    require(reduce_op == "sum", f"{name}: reduce_op is {reduce_op}; allowed: sum.")
    product = _Product(name, input, x2, options)
    group = group_of(name, hcom, world_size)
    require(
        input.size(0) % group.size() == 0,
        f"{name}: The x1 first-axis should be divisible by world_size. It is {input.size(0)}, world_size {world_size}.",
        "VALUE",
    )
    y, bias, factor = (
        product.of(input, product.row_scales(input)),
        options.get("bias"),
        product.factor(),
    )
    y = y if factor is None else y * factor
    y = scatter_sum(y if bias is None else y + bias.float(), group)
    y = _stored(y, _result_dtype(name, input, options.get("y_dtype")))
    return y, input.new_empty(0, dtype=torch.float32)
