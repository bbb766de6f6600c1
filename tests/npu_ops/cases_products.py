# SPDX-License-Identifier: Apache-2.0
"""Matrix products and quantisation."""

import itertools

import torch
from table import add, int8, ints, rand

ONE = (torch.float32,)


# ---- plain products
add(
    "npu_linear",
    lambda x, w, b=None: x @ w.T + (0 if b is None else b),
    rand(3, 5),
    rand(4, 5),
    rand(4),
    grad=(0, 1, 2),
)
add("npu_linear_backward", lambda g, x, w: (g @ w, g.T @ x), rand(3, 4), rand(3, 5), rand(4, 5))
add(
    "npu_bmmV2",
    lambda a, b, s: torch.einsum("bij,bjk->bik", a, b),
    rand(2, 3, 4),
    rand(2, 4, 5),
    [],
    grad=(0, 1),
)
add(
    "npu_bmmV2",
    lambda a, b, s: torch.einsum("bij,bjk->bik", a, b).reshape(s),
    rand(2, 3, 4),
    rand(2, 4, 5),
    [6, 5],
    label="sizes",
)
add(
    "npu_transpose_batchmatmul",
    lambda a, b: torch.einsum("bmk,bkn->mbn", a, b),
    rand(3, 2, 4),
    rand(3, 4, 5),
    label="plain",
)
add(
    "npu_transpose_batchmatmul",
    lambda a, b, **k: torch.einsum("mbk,bkn->mbn", a, b),
    rand(2, 3, 4),
    rand(3, 4, 5),
    perm_x1=[1, 0, 2],
    perm_y=[1, 0, 2],
    label="permuted",
)


# ---- grouped
def by_rows(x, w, *, group_list, bias=None, group_type=0, split_item=0, group_list_type=0, **rest):
    values = group_list.tolist() if isinstance(group_list, torch.Tensor) else group_list
    if group_list_type == 0:
        pairs = [(i, b - a) for i, (a, b) in enumerate(zip([0, *values], values))]
    else:
        pairs = list(enumerate(values)) if group_list_type == 1 else values
    outs, at = [], 0
    for i, n in pairs:
        weight = w[0][i] if w[0].dim() == 3 else w[i]
        b = 0 if bias is None else bias[0][i] if w[0].dim() == 3 else bias[i]
        outs.append(x[0][at : at + n] @ weight + b)
        at += n
    if split_item in (0, 1):
        return outs
    return [
        torch.cat([*outs, torch.zeros(x[0].shape[0] - at, outs[0].shape[1], dtype=torch.float64)])
    ]


G = "npu_grouped_matmul"
x, w3, w2 = [rand(7, 4)], [rand(3, 4, 5)], [rand(4, 5), rand(4, 5), rand(4, 5)]
ends, counts = torch.tensor([2, 2, 6]), torch.tensor([2, 0, 4])
add(G, by_rows, x, w3, group_list=ends, split_item=3, group_type=0, label="ends")
add(
    G,
    by_rows,
    x,
    w3,
    group_list=counts,
    split_item=2,
    group_type=0,
    group_list_type=1,
    bias=[rand(3, 5)],
    label="counts",
)
add(
    G,
    by_rows,
    x,
    w2,
    group_list=torch.tensor([[0, 2], [2, 4]]),
    split_item=3,
    group_type=0,
    group_list_type=2,
    label="pairs",
)
add(G, by_rows, x, w2, group_list=ends, split_item=0, group_type=0, label="list", fake=False)
add(
    G + ".List",
    by_rows,
    x,
    w2,
    group_list=[2, 2, 6],
    split_item=3,
    bias=[rand(5), rand(5), rand(5)],
    label="numbers",
)
add(
    G,
    lambda x, w, **k: [a @ b for a, b in zip(x, w)],
    [rand(2, 4), rand(3, 2, 4)],
    [rand(4, 5), rand(4, 6)],
    group_type=-1,
    label="each",
)


def by_columns(x, w, *, group_list, **rest):
    ends = [0, *group_list.tolist()]
    return [torch.stack([x[0][:, a:b] @ w[0][a:b] for a, b in itertools.pairwise(ends)])]


add(
    G,
    by_columns,
    [rand(3, 7)],
    [rand(7, 5)],
    group_list=torch.tensor([2, 2, 7]),
    split_item=3,
    group_type=2,
    label="columns",
)


def quantised(x, w, *, scale, per_token_scale, bias=None, group_list, **rest):
    outs, at = [], 0
    for i, end in enumerate(group_list.tolist()):
        y = x[0][at:end].double() @ w[0][i].double() + (0 if bias is None else bias[0][i].double())
        outs.append(y * scale[0][i] * per_token_scale[0][at:end, None])
        at = end
    return [torch.cat(outs)]


add(G, quantised, [ints(-20, 20, 6, 4, dtype=torch.int8)], [ints(-20, 20, 2, 4, 5, dtype=torch.int8)], scale=[rand(2, 5)], per_token_scale=[rand(6)],
    bias=[ints(-9, 9, 2, 5, dtype=torch.int32)], group_list=torch.tensor([2, 6]), split_item=3, group_type=0, output_dtype=6, label="int8", dtypes=ONE, tolerance=1e-3)  # fmt: skip


def accumulated(out, x, w, group_list, **rest):
    ends = [0, *group_list.tolist()]
    return out + torch.stack([x[a:b].T @ w[a:b] for a, b in itertools.pairwise(ends)]).reshape(
        out.shape
    )


for name in ("npu_grouped_matmul_add", "npu_grouped_matmul_add_"):
    add(
        name,
        accumulated,
        rand(6, 5),
        rand(7, 3),
        rand(7, 5),
        torch.tensor([3, 7]),
        keep=(0,),
        dtypes=ONE,
    )


# ---- int4 and quantised products
def nibbles(x):
    """int4 values out of int32, first in the lowest bits."""
    out = torch.empty(*x.shape[:-1], x.shape[-1] * 8, dtype=torch.int64)
    for k in range(8):
        v = (x.long() >> (4 * k)) & 15
        out[..., k::8] = torch.where(v > 7, v - 16, v)
    return out


def packed(x):
    out = torch.zeros(*x.shape[:-1], x.shape[-1] // 8, dtype=torch.int64)
    for k in range(8):
        out |= (x[..., k::8].long() & 15) << (4 * k)
    return torch.where(out >= 2**31, out - 2**32, out).to(torch.int32)


add("npu_convert_weight_to_int4pack", packed, ints(-8, 8, 4, 16, dtype=torch.int32), dtypes=ONE)


def quant_matmul(a, b, scale, *, offset=None, pertoken_scale=None, bias=None, output_dtype=None):
    a = nibbles(a) if a.dtype == torch.int32 else a
    b = nibbles(b) if b.dtype == torch.int32 else b
    y = a.double() @ b.double()
    if bias is not None and bias.dtype == torch.int32:
        y = y + bias
    y = y * scale * (1 if pertoken_scale is None else pertoken_scale[:, None])
    if bias is not None and bias.dtype != torch.int32:
        y = y + bias
    return int8(y + (0 if offset is None else offset)) if output_dtype is None else y


a8, b8 = ints(-30, 30, 3, 8, dtype=torch.int8), ints(-30, 30, 8, 16, dtype=torch.int8)
add(
    "npu_quant_matmul",
    quant_matmul,
    a8,
    b8,
    rand(16) / 64,
    offset=rand(16),
    bias=ints(-50, 50, 16, dtype=torch.int32),
    label="int8",
    dtypes=ONE,
)
add(
    "npu_quant_matmul",
    quant_matmul,
    a8,
    b8,
    rand(16),
    pertoken_scale=rand(3),
    bias=rand(16),
    output_dtype=6,
    label="float",
    dtypes=ONE,
    tolerance=1e-3,
)
add(
    "npu_quant_matmul",
    quant_matmul,
    packed(ints(-8, 8, 3, 8)),
    packed(ints(-8, 8, 8, 16)),
    rand(16),
    output_dtype=6,
    label="int4",
    dtypes=ONE,
    tolerance=1e-3,
)


def grouped_quant(a, b, scale, *, offset=None, pertoken_scale, group_sizes, output_dtype):
    """A scale for each group of rows. int4 by int4: the offset is of the weights. int8 by int4: the chip
    multiplies 16 (a // 16) + (a % 16 - 8), and adds the offset before the scale of the row."""
    both, b = a.dtype == torch.int32, nibbles(b).double()
    a = nibbles(a).double() if both else a.double()
    size, y = group_sizes[2], 0
    for g in range(scale.shape[0]):
        rows = slice(g * size, (g + 1) * size)
        x, w = a[:, rows], b[rows]
        if both:
            w = w - offset[g]
        else:
            x = 16 * torch.floor(x / 16) + (x - 16 * torch.floor(x / 16) - 8)
        y = y + (x @ w) * scale[g]
    y = y if both or offset is None else y + offset
    return y * pertoken_scale


_w4 = packed(ints(-8, 8, 8, 16))
_by_group = {"pertoken_scale": rand(3, 1), "output_dtype": 6, "dtypes": ONE, "tolerance": 1e-3}
for size in (2, 4, 5, 8):
    count = -(-8 // size)
    add("npu_quant_matmul", grouped_quant, packed(ints(-8, 8, 3, 8)), _w4, rand(count, 16) / 8,
        offset=ints(-3, 4, count, 16).half(), group_sizes=[1, 1, size], label=f"a4w4-{size}", **_by_group)  # fmt: skip
    add("npu_quant_matmul", grouped_quant, ints(-128, 128, 3, 8, dtype=torch.int8), _w4, rand(count, 16) / 64,
        offset=rand(16), group_sizes=[0, 0, size], label=f"a8w4-{size}", **_by_group)  # fmt: skip
add("npu_quant_matmul", grouped_quant, a8, _w4, rand(2, 16) / 64, group_sizes=[0, 0, 4], label="a8w4-plain", **_by_group)  # fmt: skip


def weight_quant(x, w, s, o=None, qs=None, qo=None, bias=None, group=0):
    w = nibbles(w) if w.dtype == torch.int32 else w
    s = s if group == 0 else s.repeat_interleave(group, 0)
    o = o if group == 0 or o is None else o.repeat_interleave(group, 0)
    y = x @ ((w.double() + (0 if o is None else o)) * s) + (0 if bias is None else bias)
    return y if qs is None else int8(y * qs + (0 if qo is None else qo))


W = "npu_weight_quant_batchmatmul"
add(
    W,
    weight_quant,
    rand(3, 8),
    ints(-9, 9, 8, 16, dtype=torch.int8),
    rand(16) / 4,
    rand(16),
    label="int8",
    dtypes=ONE,
    tolerance=1e-3,
)
add(
    W,
    weight_quant,
    rand(3, 8),
    ints(-9, 9, 8, 16, dtype=torch.int8),
    rand(2, 16) / 4,
    None,
    None,
    None,
    rand(16),
    4,
    label="groups",
    dtypes=ONE,
    tolerance=1e-3,
)
add(
    W,
    weight_quant,
    rand(3, 8),
    packed(ints(-8, 8, 8, 16)),
    rand(16) / 4,
    label="int4",
    dtypes=ONE,
    tolerance=1e-3,
)


# ---- quantisers
def dynamic(x, *, smooth_scales=None, group_index=None, dst_type=None, quant_mode="pertoken"):
    y = x.clone()
    if smooth_scales is not None and group_index is None:
        y = y * smooth_scales
    elif smooth_scales is not None:
        at = 0
        for g, end in enumerate(group_index.tolist()):
            y[at:end] *= smooth_scales[g]
            at = end
    top = 7 if dst_type == 285 else 127
    dims = {"pertoken": (-1,), "perchannel": (-2,), "pertensor": tuple(range(y.dim()))}[quant_mode]
    scale = y.abs().amax(dims, keepdim=True) / top
    exact = torch.where(scale == 0, torch.zeros_like(y), y / scale)
    shape = {"pertoken": -1, "perchannel": -2}
    scale = scale.reshape(1) if quant_mode == "pertensor" else scale.squeeze(shape[quant_mode])
    return packed(torch.round(exact).long()) if dst_type == 285 else int8(exact), scale


zero_row = rand(4, 16)
zero_row[2] = 0
D = "npu_dynamic_quant"
add(D, dynamic, zero_row, label="zero-row", dtypes=ONE)
add(
    D,
    dynamic,
    rand(2, 3, 16),
    smooth_scales=rand(16, low=0.5, high=2),
    label="smooth",
    dtypes=ONE,
    tolerance=1e-5,
)
add(
    D,
    dynamic,
    rand(4, 16),
    smooth_scales=rand(2, 16, low=0.5, high=2),
    group_index=torch.tensor([1, 4]),
    label="groups",
    tolerance=1e-5,
    dtypes=ONE,
)
for mode in ("perchannel", "pertensor"):
    add(D, dynamic, rand(4, 16), quant_mode=mode, label=mode, dtypes=ONE, tolerance=1e-5)
# Every row's scale is 1/4, so that ties are ties in every precision.
quarters = rand(4, 16).clamp(-1.75, 1.75)
quarters[:, 0] = 1.75
add(D, dynamic, quarters, dst_type=285, label="int4", dtypes=ONE)


def asymmetric(x):
    top, low = x.amax(-1, keepdim=True), x.amin(-1, keepdim=True)
    scale = (top - low) / 255
    offset = 127 - top / scale
    return int8(x / scale + offset), scale[..., 0], offset[..., 0]


add("npu_dynamic_quant_asymmetric", asymmetric, rand(4, 16), dtypes=ONE, tolerance=1e-4)


def quantize(x, s, z, dtype, axis=1, div_mode=True):
    low, high, kind = {
        1: (-128, 127, torch.int8),
        13: (0, 255, torch.uint8),
        14: (-(2**31), 2**31 - 1, torch.int32),
    }[dtype]
    shape = [1] * x.dim()
    shape[axis] = -1
    s, z = s.reshape(shape), 0 if z is None else z.reshape(shape).double()
    y = torch.round(x / s) + z if div_mode else torch.round(x * s + z)
    return y.clamp(low, high).to(kind)


tenth = rand(4, low=0.05, high=0.2).clamp(min=0.0625)
for number in (1, 13, 14):
    add(
        "npu_quantize",
        quantize,
        rand(3, 4, 2),
        tenth,
        ints(0, 9, 4, dtype=torch.int32),
        number,
        1,
        label=f"div{number}",
        dtypes=ONE,
    )
add(
    "npu_quantize",
    quantize,
    rand(3, 4),
    rand(4) * 20,
    rand(4),
    1,
    -1,
    False,
    label="mul",
    dtypes=ONE,
)


def anti(x, scale, *, offset=None, dst_dtype=None):
    x = nibbles(x) if x.dtype == torch.int32 else x
    return (x.double() + (0 if offset is None else offset)) * scale


add(
    "npu_anti_quant",
    anti,
    ints(-128, 128, 3, 8, dtype=torch.int8),
    rand(8),
    offset=rand(8),
    label="int8",
    dtypes=ONE,
    tolerance=2e-3,
)
add(
    "npu_anti_quant",
    anti,
    packed(ints(-8, 8, 3, 8)),
    rand(8),
    label="int4",
    dtypes=ONE,
    tolerance=2e-3,
)


def trans(scale, offset=None):
    import struct

    out = []
    for i, s in enumerate(scale.tolist()):
        bits = struct.unpack("<I", struct.pack("<f", s))[0] & 0xFFFFE000 | 1 << 46
        if offset is not None:
            bits |= (max(-256, min(255, round(float(offset[i])))) & 0x1FF) << 37
        out.append(bits)
    return torch.tensor(out)


add("npu_trans_quant_param", trans, rand(5), label="scale", dtypes=ONE)
add("npu_trans_quant_param", trans, rand(5), rand(5) * 200, label="offset", dtypes=ONE)


def group_quant(x, scale, index, *, offset=None):
    out, at = torch.empty(x.shape, dtype=torch.int8), 0
    for g, end in enumerate(index.tolist()):
        out[at:end] = int8(x[at:end] * scale[g] + (0 if offset is None else offset))
        at = end
    return out


add(
    "npu_group_quant",
    group_quant,
    rand(6, 8),
    rand(3, 8) * 30,
    torch.tensor([1, 1, 6]),
    offset=rand(1),
    dtypes=ONE,
)


def swiglu_quant(x, *, smooth_scales=None, activate_left=False, quant_mode=0, offsets=None):
    a, b = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    y = a / (1 + torch.exp(-a)) * b if activate_left else a * b / (1 + torch.exp(-b))
    y = y if smooth_scales is None else y * smooth_scales
    if quant_mode == 0:
        return int8(y + (0 if offsets is None else offsets)), None
    scale = 127 / y.abs().amax(-1, keepdim=True)
    return int8(y * scale), scale[..., 0]


add(
    "npu_swiglu_quant",
    swiglu_quant,
    rand(3, 16),
    quant_mode=1,
    activate_left=True,
    label="dynamic",
    dtypes=ONE,
)
add(
    "npu_swiglu_quant",
    swiglu_quant,
    rand(3, 16),
    smooth_scales=rand(8) * 10,
    offsets=rand(8),
    label="static",
    dtypes=ONE,
)


def grouped_swiglu_quant(
    x, *, group_index, smooth_scales=None, offsets=None, counts=False, **given
):
    """Each group of rows as a call of its own."""
    ends = group_index.cumsum(0) if counts else group_index
    found, begin = [], 0
    for g, end in enumerate(ends.tolist()):
        own = {"smooth_scales": smooth_scales, "offsets": offsets}
        own = {name: value[g] for name, value in own.items() if value is not None}
        found.append(swiglu_quant(x[begin:end], **own, **given))
        begin = end
    scales = None if found[0][1] is None else torch.cat([scale for _, scale in found])
    return torch.cat([y for y, _ in found]), scales


add(
    "npu_swiglu_quant",
    grouped_swiglu_quant,
    rand(6, 16),
    smooth_scales=rand(3, 8),
    group_index=torch.tensor([2, 2, 6], dtype=torch.int32),
    quant_mode=1,
    label="groups",
    dtypes=ONE,
)
add(
    "npu_swiglu_quant",
    lambda x, *, group_list_type, **given: grouped_swiglu_quant(x, counts=True, **given),
    rand(6, 16),
    smooth_scales=rand(2) * 20,
    offsets=rand(2),
    group_index=torch.tensor([1, 5]),
    group_list_type=1,
    label="counted groups",
    dtypes=ONE,
)
add(
    "npu_dequant_bias",
    lambda x, ws, a, b: (x.double() + b) * ws * a[:, None],
    ints(-99, 99, 3, 4, dtype=torch.int32),
    rand(4),
    rand(3),
    ints(-9, 9, 4, dtype=torch.int32),
    dtypes=ONE,
    tolerance=2e-3,
)
