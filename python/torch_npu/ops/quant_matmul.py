# SPDX-License-Identifier: Apache-2.0
"""Products of fp8, hifloat8, fp4, int8 and int4 matrices: accumulated, grouped, per low rank adapter."""

import torch
import torch.nn.functional as F

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import (
    dimensions,
    dtype_of,
    elements,
    floating,
    refuse_given,
    require,
    shapes,
    wide,
)
from torch_npu.ops._groups import ends_of, spans
from torch_npu.ops.matmul import scale_of, whole_numbers

_BYTES = (*lowp.FP8, lowp.HIF8)


def _output(number, name: str, argument: str):
    kind = dtype_of(number, torch.bfloat16, name, argument)
    require(
        kind in (torch.float16, torch.bfloat16, torch.float32),
        f"{name}: {argument} is {number}; allowed: float16, bfloat16, float32.",
        "TYPE",
    )
    return kind


def _same_shape(input, *args, **kwargs):
    return torch.empty_like(input)


# ---- accumulated: input + x1^T x2 -------------------------------------------------------


def _both_kinds(name, x1, x2, x1_dtype, x2_dtype):
    return (
        lowp.kind_of_tensor(x1, x1_dtype, name, "x1", _BYTES),
        lowp.kind_of_tensor(x2, x2_dtype, name, "x2", _BYTES),
    )


def _accumulator(name, input) -> None:
    require(
        input.dtype == torch.float32,
        f"{name}: input is {input.dtype}; allowed: torch.float32.",
        "TYPE",
    )


@implements("npu_add_quant_matmul")
def npu_add_quant_matmul(
    input, x1, x2, x2_scale, *, x1_scale=None, group_sizes=None, x1_dtype=None, x2_dtype=None,
    x1_scale_dtype=None, x2_scale_dtype=None,
):  # fmt: skip
    name = "npu_add_quant_matmul"
    _accumulator(name, input)
    kinds = _both_kinds(name, x1, x2, x1_dtype, x2_dtype)
    dimensions(name, 2, input=input, x1=x1, x2=x2)
    rows, columns = input.shape
    depth = x2.size(0)
    # x1 is (K, M); Ascend's own test hands (M, K).
    turned = list(x1.shape) != [depth, rows] and list(x1.shape) == [rows, depth]
    wanted = (rows, depth) if turned else (depth, rows)
    shapes(name, x1=(x1, wanted), x2=(x2, (depth, columns)))
    a, b = lowp.decode(x1, kinds[0]), lowp.decode(x2, kinds[1])
    a = a.t() if turned else a
    if lowp.is_mx(x2_scale):
        pairs = -(-depth // 64)
        require(x1_scale is not None, f"{name}: x1_scale must be given with an MX x2_scale.")
        lowp.check_scale(x1_scale, name, "x1_scale", [pairs, rows, 2])
        lowp.check_scale(x2_scale, name, "x2_scale", [pairs, columns, 2])
        a = a * lowp.mx_factor(x1_scale, 0, depth)
        b = b * lowp.mx_factor(x2_scale, 0, depth)
        return input + a.t() @ b
    elements(name, (1,), x1_scale=x1_scale, x2_scale=x2_scale)
    factor = x2_scale.float().reshape(())
    factor = factor if x1_scale is None else factor * x1_scale.float().reshape(())
    return input + a.t() @ b * factor


@implements("npu_add_quant_matmul_")
def npu_add_quant_matmul_(input, *args, **kwargs):
    return input.copy_(torch.ops.npu.npu_add_quant_matmul(input, *args, **kwargs))


@implements("npu_add_quant_gmm", meta=_same_shape)
def npu_add_quant_gmm(
    input, x1, x2, x2_scale, group_list, *, x1_scale=None, group_list_type=0, group_sizes=None,
    x1_dtype=None, x2_dtype=None, x1_scale_dtype=None, x2_scale_dtype=None,
):  # fmt: skip
    name = "npu_add_quant_gmm"
    refuse_given(name, group_sizes=group_sizes)
    _accumulator(name, input)
    kinds = _both_kinds(name, x1, x2, x1_dtype, x2_dtype)
    dimensions(name, 3, input=input)
    dimensions(name, 2, x1=x1, x2=x2)
    groups, rows, columns = input.shape
    depth = x1.size(0)
    shapes(
        name, x1=(x1, (depth, rows)), x2=(x2, (depth, columns)), group_list=(group_list, (groups,))
    )
    ends = ends_of(group_list, group_list_type, depth, name)
    a, b = lowp.decode(x1, kinds[0]), lowp.decode(x2, kinds[1])
    factors = [None] * groups
    if lowp.is_mx(x2_scale):
        pairs = depth // 64 + groups
        require(x1_scale is not None, f"{name}: x1_scale must be given with an MX x2_scale.")
        lowp.check_scale(x1_scale, name, "x1_scale", [pairs, rows, 2])
        lowp.check_scale(x2_scale, name, "x2_scale", [pairs, columns, 2])
        a = a * lowp.mx_factor_groups(x1_scale, ends, depth)
        b = b * lowp.mx_factor_groups(x2_scale, ends, depth)
    else:
        elements(name, (groups,), x1_scale=x1_scale)
        elements(name, (groups, groups * columns), x2_scale=x2_scale)
        factors = x2_scale.float().reshape(groups, 1, -1)
        if x1_scale is not None:
            factors = factors * x1_scale.float().reshape(groups, 1, 1)
    sums = []
    for g, (start, end) in enumerate(spans(ends)):
        product = a[start:end].t() @ b[start:end]
        sums.append(product if factors[g] is None else product * factors[g])
    return input + torch.stack(sums)


@implements("npu_add_quant_gmm_")
def npu_add_quant_gmm_(input, *args, **kwargs):
    return input.copy_(torch.ops.npu.npu_add_quant_gmm(input, *args, **kwargs))


# ---- low rank adapters ------------------------------------------------------------------


@implements("npu_batch_gather_matmul")
def npu_batch_gather_matmul(
    input, x, weight_b, indices, weight_a=None, layer_idx=0, scale=1e-3, y_offset=0, y_slice_size=-1
):
    """Row b gains scale * B (A x[b]) with the adapters of indices[b]; rows of other indices stay."""
    name = "npu_batch_gather_matmul"
    floating(name, input=input, x=x, weight_b=weight_b, weight_a=weight_a)
    dimensions(name, 2, input=input, x=x)
    dimensions(name, 4, weight_b=weight_b, weight_a=weight_a)
    batch, (count, layers, size, rank) = input.size(0), weight_b.shape
    shapes(name, indices=(indices, (batch,)))
    depth = rank if weight_a is None else weight_a.size(3)
    shapes(name, x=(x, (batch, depth)), weight_a=(weight_a, (count, layers, rank, depth)))
    require(
        0 <= layer_idx < layers,
        f"{name}: layer_idx is {layer_idx}; weight_b has {layers} layers.",
        "VALUE",
    )
    width = size if y_slice_size == -1 else y_slice_size
    require(
        width == size,
        f"{name}: y_slice_size is {y_slice_size}; allowed: -1, {size} (weight_b's rows).",
        "VALUE",
    )
    require(
        y_offset >= 0 and y_offset + width <= input.size(1),
        f"{name}: y_offset is {y_offset} and the slice has {width} columns; input has {input.size(1)}.",
        "VALUE",
    )
    if count == 0:
        return input.clone()
    known = (indices >= 0) & (indices < count)
    chosen = torch.where(known, indices, 0).to(torch.int64)
    t = wide(x)[:, :, None]
    if weight_a is not None:
        t = wide(weight_a[:, layer_idx].index_select(0, chosen)) @ t
    gain = (wide(weight_b[:, layer_idx].index_select(0, chosen)) @ t).squeeze(2) * scale
    gain = F.pad(torch.where(known[:, None], gain, 0), (y_offset, input.size(1) - y_offset - width))
    return (wide(input) + gain).to(input.dtype)


@implements("npu_batch_gather_matmul_")
def npu_batch_gather_matmul_(input, *args, **kwargs):
    return input.copy_(torch.ops.npu.npu_batch_gather_matmul(input, *args, **kwargs))


# ---- scales of two levels ---------------------------------------------------------------


def _two_levels(name, which, x, level0, level1):
    """The numbers of a matrix of rows (n, k)."""
    kind = lowp.kind_of_tensor(x, lowp.E2M1, name, which, (lowp.E2M1,))
    y = lowp.decode(x, kind)
    rows, depth = y.shape
    lowp.check_scale(level1, name, f"{which}_level1_scale", [rows, -(-depth // 64), 2])
    return y * lowp.mx_factor(level1, 1, depth) * lowp.spread(wide(level0), 1, 512, depth)


@implements("npu_dual_level_quant_matmul")
def npu_dual_level_quant_matmul(
    x1, x2, x1_level0_scale, x2_level0_scale, x1_level1_scale, x2_level1_scale, *, bias=None,
    output_dtype=15,
):  # fmt: skip
    name = "npu_dual_level_quant_matmul"
    dtype = _output(output_dtype, name, "output_dtype")
    dimensions(name, 2, x1=x1, x2=x2)
    require(
        x1.size(1) == x2.size(1),
        f"{name}: x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}; the last sizes must be the same.",
    )
    blocks = -(-x1.size(1) * 2 // 512)
    shapes(
        name,
        x1_level0_scale=(x1_level0_scale, (x1.size(0), blocks)),
        x2_level0_scale=(x2_level0_scale, (blocks, x2.size(0))),
        bias=(bias, (x2.size(0),)),
    )
    a = _two_levels(name, "x1", x1, x1_level0_scale, x1_level1_scale)
    b = _two_levels(name, "x2", x2, x2_level0_scale.t(), x2_level1_scale)
    y = a @ b.t()
    return (y if bias is None else y + wide(bias)).to(dtype)


# ---- float16 by int8 --------------------------------------------------------------------


class _Dequantised:
    """x quantised to int8, multiplied by int8 weights, dequantised."""

    def __init__(self, name, x, weight, weight_scale, bias, x_scale, x_offset, smooth, quant_mode):
        refuse_given(name, bias=bias, x_offset=x_offset)
        floating(name, x=x)
        require(
            quant_mode in ("pertoken", "pertensor"),
            f"{name}: quant_mode is {quant_mode}; allowed: pertoken, pertensor.",
            "VALUE",
        )
        require(
            weight.dtype == torch.int8,
            f"{name}: quantized_weight is {weight.dtype}; allowed: int8.",
            "TYPE",
        )
        dimensions(name, 2, x=x)
        rows, depth = x.shape
        shapes(name, quantized_weight=(weight, (*weight.shape[:-1], depth)))
        elements(name, (weight.numel() // max(depth, 1),), weight_scale=weight_scale)
        elements(name, (depth,), smooth_scale=smooth)
        require(
            quant_mode == "pertoken" or x_scale is not None,
            f"{name}: x_scale must be given with quant_mode pertensor.",
        )
        elements(name, (1,) if quant_mode == "pertensor" else (rows,), x_scale=x_scale)
        y = wide(x) if smooth is None else wide(x) * wide(smooth).reshape(-1)
        if x_scale is None:
            top = y.abs()
            x_scale = (top.amax(1) if depth else top.sum(1)) / 127
        step = wide(x_scale).reshape(-1, 1)
        y = torch.where(step == 0, 0, y / step)
        self.q = torch.clamp(torch.round(y), -128, 127).double()
        # int64 scales hold the product of both scales.
        self.step = 1 if weight_scale.dtype == torch.int64 else step.double()
        self.weight, self.dtype = weight, x.dtype
        self.scale = scale_of(weight_scale).double().reshape(weight.shape[:-1])

    def product(self, rows: slice, group=...):
        y = self.q[rows] @ self.weight[group].double().t() * self.scale[group]
        step = self.step if isinstance(self.step, int) or len(self.step) == 1 else self.step[rows]
        return (y * step).to(self.dtype)


@implements("npu_quant_matmul_dequant")
def npu_quant_matmul_dequant(
    x, quantized_weight, weight_scale, *, bias=None, x_scale=None, x_offset=None, smooth_scale=None,
    quant_mode="pertoken",
):  # fmt: skip
    name = "npu_quant_matmul_dequant"
    dimensions(name, 2, quantized_weight=quantized_weight)
    return _Dequantised(
        name, x, quantized_weight, weight_scale, bias, x_scale, x_offset, smooth_scale, quant_mode
    ).product(slice(None))


def _grouped_dequant_meta(x, quantized_weight, weight_scale, group_list, **rest):
    return x.new_empty(x.size(0), quantized_weight.size(1))


@implements("npu_quant_grouped_matmul_dequant", meta=_grouped_dequant_meta)
def npu_quant_grouped_matmul_dequant(
    x, quantized_weight, weight_scale, group_list, *, bias=None, x_scale=None, x_offset=None,
    smooth_scale=None, quant_mode="pertoken",
):  # fmt: skip
    name = "npu_quant_grouped_matmul_dequant"
    dimensions(name, 3, quantized_weight=quantized_weight)
    shapes(name, group_list=(group_list, (quantized_weight.size(0),)))
    ends = ends_of(group_list, 0, x.size(0), name)
    plan = _Dequantised(
        name, x, quantized_weight, weight_scale, bias, x_scale, x_offset, smooth_scale, quant_mode
    )
    y = x.new_zeros(x.size(0), quantized_weight.size(1))
    for g, (start, end) in enumerate(spans(ends)):
        y[start:end] = plan.product(slice(start, end), g)
    return y


# ---- int8 and int4 with more around the product -----------------------------------------


def _integers(name, **tensors) -> None:
    for what, x in tensors.items():
        require(
            x.dtype in (torch.int8, torch.int32),
            f"{name}: {what} is {x.dtype}; allowed: int8, int4 packed in int32.",
            "TYPE",
        )


def _fits(name, a, b, x1, x2) -> None:
    require(
        a.size(-1) == b.size(-2),
        f"{name}: x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}; {a.size(-1)} columns meet "
        f"{b.size(-2)} rows.",
    )


@implements("npu_quant_matmul_gelu")
def npu_quant_matmul_gelu(x1, x2, x1_scale, x2_scale, *, bias=None, approximate="gelu_erf"):
    name = "npu_quant_matmul_gelu"
    _integers(name, x1=x1, x2=x2)
    kinds = {"gelu_erf": "none", "gelu_tanh": "tanh"}
    require(
        approximate in kinds,
        f"{name}: approximate is {approximate}; allowed: {', '.join(kinds)}.",
        "VALUE",
    )
    a, b = whole_numbers(x1), whole_numbers(x2)
    _fits(name, a, b, x1, x2)
    rows, columns = a.size(-2), b.size(-1)
    elements(name, (1, columns), x2_scale=x2_scale)
    elements(name, (1, rows), x1_scale=x1_scale)
    y = a @ b
    late = bias is not None and bias.is_floating_point()
    y = y if bias is None or late else y + bias.double()
    y = y * x2_scale.double().reshape(-1) * x1_scale.double().reshape(-1, 1)
    y = y + bias.double() if late else y
    dtype = torch.bfloat16 if x2_scale.dtype == torch.bfloat16 else torch.float16
    return F.gelu(y.float(), approximate=kinds[approximate]).to(dtype)


@implements("npu_quant_matmul_reduce_sum")
def npu_quant_matmul_reduce_sum(x1, x2, *, x1_scale=None, x2_scale=None):
    name = "npu_quant_matmul_reduce_sum"
    _integers(name, x1=x1, x2=x2)
    dimensions(name, 3, x1=x1, x2=x2)
    a, b = whole_numbers(x1), whole_numbers(x2)
    _fits(name, a, b, x1, x2)
    for what, x in (("x1_scale", x1_scale), ("x2_scale", x2_scale)):
        require(x is not None, f"{name}: {what} must be given.")
    shapes(name, x1_scale=(x1_scale, a.shape[:2]), x2_scale=(x2_scale, (b.size(2),)))
    y = (torch.bmm(a, b) * x1_scale.double()[:, :, None]).sum(0) * x2_scale.double()
    return y.to(torch.bfloat16)


def _batch_operand(name, what, x, number):
    if x.dtype == torch.int8:
        return x.float()
    return lowp.decode(x, lowp.kind_of_tensor(x, number, name, what, _BYTES))


@implements("npu_transpose_quant_batchmatmul")
def npu_transpose_quant_batchmatmul(
    x1, x2, dtype, *, bias=None, x1_scale=None, x2_scale=None, group_sizes=None, perm_x1=None,
    perm_x2=None, perm_y=None, batch_split_factor=1, x1_dtype=None, x2_dtype=None,
):  # fmt: skip
    name = "npu_transpose_quant_batchmatmul"
    kind = _output(dtype, name, "dtype")
    dimensions(name, 3, x1=x1, x2=x2)
    for what, found, allowed in (
        ("perm_x1", perm_x1, ([1, 0, 2],)),
        ("perm_x2", perm_x2, ([0, 1, 2], [0, 2, 1])),
        ("perm_y", perm_y, ([1, 0, 2],)),
    ):
        require(
            found is None or list(found) in allowed,
            f"{name}: {what} is {found}; allowed: {', '.join(str(p) for p in allowed)}.",
            "VALUE",
        )
    a = _batch_operand(name, "x1", x1, x1_dtype).permute(1, 0, 2)
    b = _batch_operand(name, "x2", x2, x2_dtype).permute(perm_x2 or (0, 1, 2))
    require(
        a.size(0) == b.size(0) and a.size(2) == b.size(1),
        f"{name}: x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}; x1 is [m, batch, k], x2 permuted "
        "[batch, k, n].",
    )
    (batch, rows, depth), columns = a.shape, b.size(2)
    require(
        batch_split_factor > 0 and batch % batch_split_factor == 0,
        f"{name}: batch_split_factor is {batch_split_factor}; it must divide the {batch} products.",
        "VALUE",
    )
    if lowp.is_mx(x2_scale):
        require(x1_scale is not None, f"{name}: x1_scale must be given with an MX x2_scale.")
        pairs = -(-depth // 64)
        lowp.check_scale(x1_scale, name, "x1_scale", [rows, batch, pairs, 2])
        if list(x2_scale.shape) == [batch, columns, pairs, 2]:
            x2_scale = x2_scale.transpose(1, 2)
        lowp.check_scale(x2_scale, name, "x2_scale", [batch, pairs, columns, 2])
        a = a * lowp.mx_factor(x1_scale, 2, depth).permute(1, 0, 2)
        b = b * lowp.mx_factor(x2_scale, 1, depth)
        x1_scale = x2_scale = None
    elements(name, (1, rows), x1_scale=x1_scale)
    elements(name, (1, columns), x2_scale=x2_scale)
    y = torch.bmm(a, b)
    y = y if bias is None else y + wide(bias)
    y = y if x1_scale is None else y * x1_scale.float().reshape(-1, 1)
    y = y if x2_scale is None else y * x2_scale.float().reshape(-1)
    y = y.permute(1, 0, 2)
    if batch_split_factor > 1:
        y = y.reshape(rows, batch_split_factor, -1).permute(1, 0, 2)
    return y.to(kind).contiguous()


# ---- the order kernels read -------------------------------------------------------------


@implements("npu_weight_quant_preprocess")
def npu_weight_quant_preprocess(
    weight, weight_scale, x_dtype, weight_dtype, weight_scale_dtype, weight_offset=None, bias=None,
    x_scale_dtype=None, k_group_size=0,
):  # fmt: skip
    """Every kernel here reads the plain order: the results are copies, (0) for an absent one."""
    parts = (weight, weight_scale, weight_offset, bias)
    return tuple(weight.new_empty(0) if t is None else t.clone() for t in parts)
