# SPDX-License-Identifier: Apache-2.0
"""Products of quantised matrices (8 bits, fp4, MX), and the loss fused with its linear layer."""

import struct

import torch
from low_formats import (
    FLOAT8,
    blocks_max,
    e8m0,
    ends_of,
    hif8_codes,
    mx,
    mx_rows,
    mx_values,
    packed_int4,
    spread,
    to_float8,
    values_of,
)
from table import add, ints, rand

ONE = (torch.float32,)
E4M3 = FLOAT8[292]
S8 = torch.int8


def _f8(*size, low=-2.0, high=2.0, kind=E4M3):
    return to_float8(rand(*size, low=low, high=high), kind)


def _mx(*size, axis=-1, number=292):
    """(y, bytes) of random numbers in an MX format."""
    return mx(rand(*size), axis, number)


def _fixed(values):
    """Float32 whatever the case's dtype."""
    return values.float()


# ---- added to self
def add_quant_matmul(x, x1, x2, x2_scale, *, x1_scale=None, x1_dtype=None, x2_dtype=None, **_):
    if x1.size(0) != x2.size(0):
        x1 = x1.t()
    if x2_scale.dim() == 3:
        return x + mx_values(x1, x1_scale, 0).t() @ mx_values(x2, x2_scale, 0)
    product = values_of(x1, x1_dtype).t() @ values_of(x2, x2_dtype)
    return x + product * x1_scale.double() * x2_scale.double()


def _turned_mx(x, x1, x2, x2_scale, *, x1_scale, **_):
    """x1 as (M, K); its scale as always."""
    return add_quant_matmul(
        x, x1.view(torch.uint8).t().view(x1.dtype), x2, x2_scale, x1_scale=x1_scale
    )


_a, _as = _mx(70, 3, axis=0)
_b, _bs = _mx(70, 5, axis=0, number=291)
_h1, _h2 = hif8_codes(rand(6, 3)), hif8_codes(rand(6, 4))
_t1, _t2 = _fixed(torch.tensor([0.5])), _fixed(torch.tensor([0.75]))
HIF = {"x1_dtype": 290, "x2_dtype": 290}
for name in ("npu_add_quant_matmul", "npu_add_quant_matmul_"):
    add(name, add_quant_matmul, rand(3, 5), _a, _b, _bs, x1_scale=_as, label="mx", dtypes=ONE)
    add(
        name, add_quant_matmul, rand(3, 4), _h1, _h2, _t2, x1_scale=_t1, label="hif8", dtypes=ONE,
        **HIF,
    )  # fmt: skip
    add(
        name, _turned_mx, rand(3, 5), _a.view(torch.uint8).t().contiguous().view(E4M3), _b, _bs,
        x1_scale=_as, label="rows-first", dtypes=ONE,
    )  # fmt: skip


def _bounds(group_list, counts):
    ends = ends_of(group_list, counts)
    return list(zip([0, *ends[:-1]], ends, strict=True))


def add_quant_gmm(
    x, x1, x2, x2_scale, group_list, *, x1_scale=None, group_list_type=0, x1_dtype=None,
    x2_dtype=None, **_,
):  # fmt: skip
    out = x.clone()
    for g, (start, end) in enumerate(_bounds(group_list, group_list_type == 1)):
        if end == start:
            continue
        if x2_scale.dim() == 3:
            rows = slice(start // 64 + g, start // 64 + g + -(-(end - start) // 64))
            a, b = x1[start:end], x2[start:end]
            out[g] += mx_values(a, x1_scale[rows], 0).t() @ mx_values(b, x2_scale[rows], 0)
            continue
        a, b = values_of(x1[start:end], x1_dtype), values_of(x2[start:end], x2_dtype)
        scale = x1_scale.double().flatten()[g] * x2_scale.double().reshape(x2_scale.size(0), -1)[g]
        out[g] += a.t() @ b * scale
    return out


_ga, _gas = mx_rows(rand(130, 3), [70, 70, 130], 292)
_gb, _gbs = mx_rows(rand(130, 4), [70, 70, 130], 292)
_per_group = _fixed(rand(2)), _fixed(rand(2, 1)), _fixed(rand(2, 4))
for name in ("npu_add_quant_gmm", "npu_add_quant_gmm_"):
    add(
        name, add_quant_gmm, rand(3, 3, 4), _ga, _gb, _gbs, torch.tensor([70, 70, 130]),
        x1_scale=_gas, label="mx", dtypes=ONE,
    )  # fmt: skip
    add(
        name, add_quant_gmm, rand(2, 3, 4), _h1, _h2, _per_group[0], torch.tensor([2, 6]),
        x1_scale=_per_group[1], label="one-scale", dtypes=ONE, **HIF,
    )  # fmt: skip
    add(
        name, add_quant_gmm, rand(2, 3, 4), _f8(6, 3), _f8(6, 4), _per_group[2],
        torch.tensor([0, 6]), x1_scale=_per_group[0], group_list_type=1, label="channels",
        dtypes=ONE,
    )  # fmt: skip


def gather_matmul(
    x, rows, weight_b, indices, weight_a=None, layer_idx=0, scale=1e-3, y_offset=0, y_slice_size=-1
):
    out = x.clone()
    for i, w in enumerate(indices.tolist()):
        if not 0 <= w < weight_b.size(0):
            continue
        inner = rows[i] if weight_a is None else weight_a[w, layer_idx] @ rows[i]
        y = weight_b[w, layer_idx] @ inner * scale
        size = y.numel() if y_slice_size == -1 else y_slice_size
        out[i, y_offset : y_offset + size] += y[:size]
    return out


_who = torch.tensor([1, -1, 0, 2, 1], dtype=torch.int32)
for name in ("npu_batch_gather_matmul", "npu_batch_gather_matmul_"):
    add(
        name, gather_matmul, rand(5, 7), rand(5, 6), rand(2, 3, 7, 4), _who, rand(2, 3, 4, 6), 1,
        0.5, label="two-weights",
    )  # fmt: skip
    add(
        name, gather_matmul, rand(5, 9), rand(5, 4), rand(2, 1, 6, 4), _who, None, 0, 2.0, 3, 6,
        label="slice",
    )  # fmt: skip


# ---- two levels of scales
def _two_levels(v, axis):
    """(packed fp4, level 0, level 1) with level 0 a power of two."""
    level0 = torch.exp2(torch.frexp(blocks_max(v, -1, 512))[1].double())
    y, level1 = mx(v / spread(level0, -1, 512, v.size(-1)), -1, 296)
    return y, _fixed(level0), level1


def dual_level(x1, x2, s1, s2, t1, t2, *, bias=None, output_dtype=15):
    a, b = mx_values(x1, t1, -1), mx_values(x2, t2, -1)
    a = a * spread(s1.double(), -1, 512, a.size(-1))
    b = b * spread(s2.double().t(), -1, 512, b.size(-1))
    return a @ b.t() + (0 if bias is None else bias.double())


_l1, _l2 = _two_levels(rand(3, 1088), -1), _two_levels(rand(5, 1088), -1)
_levels = _l1[0], _l2[0], _l1[1], _l2[1].t().contiguous(), _l1[2], _l2[2]
add("npu_dual_level_quant_matmul", dual_level, *_levels, dtypes=ONE, tolerance=2e-2, label="bf16")
add(
    "npu_dual_level_quant_matmul", dual_level, *_levels, bias=_fixed(rand(5)), output_dtype=5,
    label="half-bias", dtypes=ONE, tolerance=2e-3,
)  # fmt: skip


# ---- experts, added to their rows
def finalize_routing(
    x, w, group_list, *, scale=None, bias=None, offset=None, pertoken_scale=None, shared_input=None,
    logit=None, row_index=None, dtype=None, shared_input_weight=1.0, shared_input_offset=0,
    output_bs=0, group_list_type=1, **_,
):  # fmt: skip
    n = scale.size(-1 if scale.dim() < 4 else -2)
    y = torch.zeros(output_bs or x.size(0), n, dtype=torch.float64)
    if shared_input is not None:
        at = slice(shared_input_offset, shared_input_offset + shared_input.size(0))
        y[at] += shared_input_weight * shared_input.double()
    for g, (start, end) in enumerate(_bounds(group_list, group_list_type == 1)):
        rows = x[start:end]
        if scale.dim() == 4:
            a = mx_values(rows, pertoken_scale[start:end], -1)
            t = a @ mx_values(w[g], scale[g], 0)
        elif scale.dtype == torch.int64:
            t = _int4_rows(rows, w[g], scale[g], bias[g], None if offset is None else offset[g])
        else:
            t = rows.double() @ w[g].double() * scale[g].double()
        if pertoken_scale is not None and scale.dim() != 4:
            t = t * pertoken_scale[start:end].double()[:, None]
        if bias is not None and bias.dtype == torch.bfloat16:
            t = t + bias[g].double()
        if logit is not None:
            t = t * logit[start:end].double()[:, None]
        for i in range(start, end):
            y[row_index[i]] += t[i - start]
    return y


def _int4_rows(rows, w, scale, bias, offset):
    codes = w.long().unsqueeze(-1) >> torch.arange(0, 32, 4) & 15
    values = torch.where(codes > 7, codes - 16, codes).flatten(-2).double()
    bits = [
        struct.unpack("<f", struct.pack("<I", b & 0xFFFFFFFF))[0] for b in scale.flatten().tolist()
    ]
    steps = torch.tensor(bits, dtype=torch.float64).view(scale.shape)
    size, x = rows.size(-1) // scale.size(0), rows.double()
    total = bias.double()[None].expand(rows.size(0), -1).clone()
    for j in range(scale.size(0)):
        at = slice(j * size, (j + 1) * size)
        total += steps[j] * ((x[:, at] - 8) @ values[at])
        if offset is not None:
            total += x[:, at].sum(-1, keepdim=True) * offset[j].double()
    return total


def _bits(scale):
    return scale.float().view(torch.int32).long()


FINALIZE = "npu_grouped_matmul_finalize_routing"
_x8, _w8 = ints(-9, 10, 7, 16, dtype=S8), ints(-9, 10, 3, 16, 8, dtype=S8)
_many = {"row_index": torch.tensor([1, 0, 1, 3, 2, 2, 3]), "pertoken_scale": _fixed(rand(7))}
_routes = torch.tensor([3, 0, 4])
add(
    FINALIZE, finalize_routing, _x8, _w8, _routes, scale=_fixed(rand(3, 8)), output_bs=5,
    label="int8", dtypes=ONE, tolerance=1e-3, logit=_fixed(rand(7)),
    shared_input=rand(2, 8).bfloat16(), shared_input_weight=0.5, shared_input_offset=2, **_many,
)  # fmt: skip
add(
    FINALIZE, finalize_routing, _x8, _w8, torch.tensor([2, 2, 6]), scale=_fixed(rand(3, 8)),
    bias=rand(3, 8).bfloat16(), group_list_type=0, label="ends-and-bias", dtypes=ONE,
    tolerance=1e-3, **_many,
)  # fmt: skip
_nibbles = ints(-8, 8, 3, 16, 8)
for label, offset in (("int4", None), ("int4-offset", _fixed(rand(3, 2, 8)))):
    add(
        FINALIZE, finalize_routing, _x8, packed_int4(_nibbles), _routes, output_bs=4, label=label,
        scale=_bits(rand(3, 2, 8)), bias=_fixed(rand(3, 8)), offset=offset, dtypes=ONE,
        logit=_fixed(rand(7)), tolerance=1e-2, **_many,
    )  # fmt: skip
_mx_x, _mx_w = _mx(7, 64), _mx(3, 64, 8, axis=-2)
add(
    FINALIZE, finalize_routing, _mx_x[0], _mx_w[0], _routes, scale=_mx_w[1],
    pertoken_scale=_mx_x[1], row_index=_many["row_index"], output_bs=4, label="mx", dtypes=ONE,
    logit=_fixed(rand(7)), tolerance=1e-3,
)  # fmt: skip


# ---- rows quantised on the way
HALF = (torch.float16,)


def _quantised_rows(x, x_scale, smooth):
    xs = x if smooth is None else x * smooth
    step = (
        xs.abs().amax(-1, keepdim=True) / 127 if x_scale is None else x_scale.double().view(-1, 1)
    )
    q = torch.where(step == 0, torch.zeros_like(xs), xs / step)
    return torch.round(q).clamp(-128, 127), step


def _steps(weight_scale, step):
    """Scales of the product: an int64 holds a float32 that has x_scale in it already."""
    if weight_scale.dtype != torch.int64:
        return weight_scale.double() * step
    values = [struct.unpack("<f", struct.pack("<I", b))[0] for b in weight_scale.flatten().tolist()]
    return torch.tensor(values, dtype=torch.float64).view(weight_scale.shape)


def matmul_dequant(
    x, weight, weight_scale, *, x_scale=None, smooth_scale=None, quant_mode="pertoken"
):
    q, step = _quantised_rows(x, x_scale, smooth_scale)
    return q @ weight.double().t() * _steps(weight_scale, step)


DEQUANT = "npu_quant_matmul_dequant"
_w = ints(-99, 100, 6, 16, dtype=S8)
_ws = _fixed(rand(6, low=0.001, high=0.1)).clamp(min=0.03125)
_zero_row = rand(4, 16)
_zero_row[1] = 0
_static = torch.tensor([0.0625])
add(DEQUANT, matmul_dequant, rand(3, 16), _w, _ws, dtypes=HALF, label="rows")
add(DEQUANT, matmul_dequant, _zero_row, _w, _ws, dtypes=HALF, label="zero-row")
add(DEQUANT, matmul_dequant, rand(0, 16), _w, _ws, dtypes=HALF, label="no-rows")


def _between_borders(x, smooth) -> bool:
    """No quotient is so near to a half that float32 may round it to the other side."""
    xs = x * smooth
    quotients = xs / (xs.abs().amax(-1, keepdim=True) / 127)
    return bool(((quotients - quotients.floor() - 0.5).abs() > 1e-3).all())


_smoothed = next(
    pair
    for pair in ((rand(3, 16), rand(16, low=0.5)) for _ in range(100))
    if _between_borders(*pair)
)
add(
    DEQUANT, matmul_dequant, _smoothed[0], _w, _ws, smooth_scale=_smoothed[1], dtypes=HALF,
    label="smooth", tolerance=1e-2,
)  # fmt: skip
add(
    DEQUANT, matmul_dequant, rand(3, 16), _w, _ws, x_scale=_static, quant_mode="pertensor",
    dtypes=HALF, label="tensor",
)  # fmt: skip
add(
    DEQUANT, matmul_dequant, rand(3, 16), _w, _bits(_ws * 0.0625), x_scale=_static,
    quant_mode="pertensor", dtypes=HALF, label="bits",
)  # fmt: skip


def grouped_dequant(
    x, weight, weight_scale, group_list, *, x_scale=None, smooth_scale=None, quant_mode="pertoken"
):
    q, step = _quantised_rows(x, x_scale, smooth_scale)
    y = torch.zeros(x.size(0), weight.size(1), dtype=torch.float64)
    for g, (start, end) in enumerate(_bounds(group_list, False)):
        part = step[start:end] if step.size(0) > 1 else step
        y[start:end] = q[start:end] @ weight[g].double().t() * _steps(weight_scale[g], part)
    return y


_gw, _gws = ints(-99, 100, 3, 6, 16, dtype=S8), _fixed(rand(3, 6, low=0.001)).clamp(min=0.03125)
add(
    "npu_quant_grouped_matmul_dequant", grouped_dequant, rand(5, 16), _gw, _gws,
    torch.tensor([2, 2, 5]), dtypes=HALF, label="rows", tolerance=1e-2,
)  # fmt: skip
add(
    "npu_quant_grouped_matmul_dequant", grouped_dequant, rand(5, 16), _gw, _gws,
    torch.tensor([0, 4, 5]), x_scale=_static, quant_mode="pertensor", dtypes=HALF, label="tensor",
    tolerance=1e-2,
)  # fmt: skip


# ---- products with something after them
def matmul_gelu(x1, x2, x1_scale, x2_scale, *, bias=None, approximate="gelu_erf"):
    if x1.dtype == torch.int32:
        x1, x2 = _signed_nibbles(x1), _signed_nibbles(x2)
    y = x1.double() @ x2.double()
    late = bias is not None and bias.is_floating_point()
    y = y if bias is None or late else y + bias
    y = y * x2_scale.double() * x1_scale.double()[:, None]
    y = y + bias.double() if late else y
    return torch.nn.functional.gelu(y, approximate="tanh" if approximate == "gelu_tanh" else "none")


def _signed_nibbles(packed):
    codes = packed.long().unsqueeze(-1) >> torch.arange(0, 32, 4) & 15
    return torch.where(codes > 7, codes - 16, codes).flatten(-2)


GELU = "npu_quant_matmul_gelu"
_m1, _m2 = ints(-9, 10, 3, 16, dtype=S8), ints(-9, 10, 16, 8, dtype=S8)
_r, _c = _fixed(rand(3) / 16), _fixed(rand(8) / 4)
add(GELU, matmul_gelu, _m1, _m2, _r, _c, dtypes=ONE, tolerance=4e-3, label="erf")
add(
    GELU, matmul_gelu, _m1, _m2, _r, _c, bias=ints(-50, 50, 8, dtype=torch.int32),
    approximate="gelu_tanh", dtypes=ONE, tolerance=4e-3, label="tanh-int-bias",
)  # fmt: skip
add(
    GELU, matmul_gelu, _m1, _m2, _r, rand(8).bfloat16(), bias=_fixed(rand(8)), dtypes=ONE,
    tolerance=2e-2, label="bfloat16",
)  # fmt: skip
add(
    GELU, matmul_gelu, packed_int4(ints(-8, 8, 3, 16)), packed_int4(ints(-8, 8, 16, 8)), _r, _c,
    dtypes=ONE, tolerance=4e-3, label="int4",
)  # fmt: skip
add(
    "npu_quant_matmul_reduce_sum",
    lambda x1, x2, *, x1_scale, x2_scale: (
        (x1.double() @ x2.double()) * x1_scale.double()[..., None] * x2_scale.double()
    ).sum(0),
    ints(-9, 10, 4, 3, 16, dtype=S8), ints(-9, 10, 4, 16, 8, dtype=S8),
    x1_scale=_fixed(rand(4, 3) / 16), x2_scale=rand(8).bfloat16(), dtypes=ONE, tolerance=2e-2,
)  # fmt: skip


def transpose_matmul(
    x1, x2, dtype, *, x1_scale=None, x2_scale=None, perm_x1=None, perm_x2=None, perm_y=None,
    batch_split_factor=1, **_,
):  # fmt: skip
    if x2_scale.dim() == 4:
        a = mx_values(x1, x1_scale, -1).transpose(0, 1)
        axis = -2 if perm_x2 == [0, 1, 2] else -1
        b = mx_values(x2, x2_scale, axis)
        b = b if axis == -2 else b.transpose(1, 2)
        y = a @ b
    else:
        a, b = x1.double().transpose(0, 1), x2.double().permute(perm_x2)
        rows = 1.0 if x1_scale is None else x1_scale.double().view(-1, 1)
        y = a @ b * x2_scale.double() * rows
    f = batch_split_factor
    if f == 1:
        return y.transpose(0, 1)
    return torch.stack([part.transpose(0, 1).flatten(1) for part in y.chunk(f, 0)])


TRANSPOSE = "npu_transpose_quant_batchmatmul"
PERMS = {"perm_x1": [1, 0, 2], "perm_x2": [0, 1, 2], "perm_y": [1, 0, 2]}
_p1, _p2 = _f8(3, 4, 16), _f8(4, 16, 8)
_channels, _tokens = _fixed(rand(8)), _fixed(rand(3))
for label, factor in (("rows-and-channels", 1), ("split", 2)):
    add(
        TRANSPOSE, transpose_matmul, _p1, _p2, 15, x1_scale=_tokens, x2_scale=_channels,
        batch_split_factor=factor, label=label, dtypes=ONE, tolerance=2e-2, **PERMS,
    )  # fmt: skip
add(
    TRANSPOSE, transpose_matmul, _p1, _f8(4, 8, 16), 5, x2_scale=_channels, label="channels",
    dtypes=ONE, tolerance=4e-3, **{**PERMS, "perm_x2": [0, 2, 1]},
)  # fmt: skip
_q1, _q2, _q3 = _mx(3, 4, 64), _mx(4, 64, 8, axis=-2), _mx(4, 8, 64)
add(
    TRANSPOSE, transpose_matmul, _q1[0], _q2[0], 15, x1_scale=_q1[1], x2_scale=_q2[1], label="mx",
    dtypes=ONE, tolerance=2e-2, **PERMS,
)  # fmt: skip
add(
    TRANSPOSE, transpose_matmul, _q1[0], _q3[0], 15, x1_scale=_q1[1], x2_scale=_q3[1],
    label="mx-turned", dtypes=ONE, tolerance=2e-2, **{**PERMS, "perm_x2": [0, 2, 1]},
)  # fmt: skip


# ---- cross entropy of a part of the vocabulary
def max_sum(x, weight, target, first, last, return_logits=False):
    logits = x @ weight.t()
    top = logits.amax(-1)
    outside = (target < first) | (target > last)
    place = torch.where(outside, torch.zeros_like(target), target - first)
    predicted = logits.gather(1, place.long()[:, None])[:, 0] - top
    bits = torch.cat((outside.long(), torch.ones(-len(target) % 8, dtype=torch.int64)))
    return (
        top,
        torch.exp(logits - top[:, None]).sum(-1),
        predicted.masked_fill(outside, 0),
        (bits.view(-1, 8) << torch.arange(8)).sum(-1).to(torch.uint8),
        place,
        logits if return_logits else torch.zeros(0, dtype=torch.float64),
    )


def masks(target_mask, count):
    return ((target_mask.long()[:, None] >> torch.arange(8)) & 1).flatten()[:count].bool()


def loss_backward(
    grad, x, weight, target_mask, masked_target, label_smoothing=0.0, logits_max=None,
    sum_exp_logits=None, softmax=None,
):  # fmt: skip
    s = softmax
    if s is None:
        s = torch.exp(x @ weight.t() - logits_max[:, None]) / sum_exp_logits[:, None]
    here = ~masks(target_mask, x.size(0))
    s = s - torch.nn.functional.one_hot(masked_target.long(), s.size(1)) * here[:, None]
    s = s.double() * grad.double()[:, None]
    return s @ weight, s.t() @ x


MAX_SUM = "npu_fused_linear_online_max_sum"
LOSS = "npu_fused_cross_entropy_loss_with_max_sum"
BACK = "npu_fused_linear_cross_entropy_loss_with_max_sum_backward"
_rows, _words = rand(11, 8, low=-1, high=1), rand(6, 8, low=-1, high=1)
for kind in (torch.int32, torch.int64):
    add(
        MAX_SUM, max_sum, _rows, _words, ints(2, 14, 11, dtype=kind), 4, 9,
        label=f"{kind}".removeprefix("torch."),
    )  # fmt: skip
add(
    MAX_SUM, max_sum, rand(8, 8), _words, ints(4, 10, 8), 4, 9, True, label="logits", tolerance=1e-2
)
_top, _sum, _predicted, _mask, _masked, _logits = max_sum(
    _rows, _words, ints(2, 14, 11), 4, 9, True
)
_soft = torch.exp(_logits - _top[:, None]) / _sum[:, None]
add(
    LOSS,
    lambda top, total, predicted: (torch.log(total) - predicted, None),
    _top, _sum, _predicted, label="loss", dtypes=ONE,
)  # fmt: skip
add(
    LOSS,
    lambda top, total, predicted, *, vocab_parallel_logits: (
        torch.log(total) - predicted,
        torch.exp(vocab_parallel_logits - top[:, None]) / total[:, None],
    ),
    _top, _sum, _predicted, vocab_parallel_logits=_logits, label="softmax", dtypes=ONE,
)  # fmt: skip
add(
    BACK, loss_backward, rand(11), _rows, _words, _mask, _masked, 0.0, _top, _sum, label="again",
    keep=(0, 6, 7), tolerance=1e-2,
)  # fmt: skip
add(
    BACK, loss_backward, rand(11), _rows, _words, _mask, _masked, 0.0, None, None, _soft,
    label="softmax", keep=(0, 8), tolerance=1e-2,
)  # fmt: skip
assert e8m0(torch.tensor([127])) == 1  # the bias of the exponents
