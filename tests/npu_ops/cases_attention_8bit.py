# SPDX-License-Identifier: Apache-2.0
"""Attention of eight-bit queries, keys and values."""

import torch
from cases_sparse import TABLE, choose, listed, sequences, together
from table import add, rand

ONE = (torch.float32,)
E4M3 = torch.float8_e4m3fn
HIF8 = 290


# ---- hifloat8
def hif8_value(byte):
    """Sign, a prefix that says how wide the fields are, exponent (its first bit the sign), fraction."""
    sign, bits = -1.0 if byte & 128 else 1.0, f"{byte & 127:07b}"
    if byte & 127 == 0x6F:
        return sign * float("inf")
    if byte == 0x80:
        return float("nan")
    for prefix, width, fraction in (
        ("11", 4, 1),
        ("10", 3, 2),
        ("01", 2, 3),
        ("001", 1, 3),
        ("0001", 0, 3),
    ):
        if bits.startswith(prefix):
            rest = bits[len(prefix) :]
            exponent = 0
            if width:
                low = int(rest[1:width], 2) if width > 1 else 0
                exponent = (2 ** (width - 1) + low) * (-1 if rest[0] == "1" else 1)
            return sign * 2.0**exponent * (1 + int(rest[width:], 2) / 2**fraction)
    m = int(bits[4:], 2)
    return sign * 2.0 ** (m - 23) if m else 0.0


HIF8_VALUES = torch.tensor([hif8_value(b) for b in range(256)], dtype=torch.float64)
POSITIVE = torch.tensor([b for b in range(127) if b != 0x6F])
POSITIVE = POSITIVE[torch.argsort(HIF8_VALUES[POSITIVE])]


def to_hif8(x):
    """The nearest byte, halves away from zero."""
    ladder = HIF8_VALUES[POSITIVE]
    at = torch.searchsorted((ladder[1:] + ladder[:-1]) / 2, x.abs(), right=True)
    return (POSITIVE[at] + 128 * (x < 0) * (at > 0)).to(torch.uint8)


def decoded(x, query_dtype):
    return HIF8_VALUES[x.long()] if query_dtype == HIF8 else x.double()


def rounded(x, query_dtype, scale=1.0):
    """Through the eight-bit type and back."""
    if query_dtype == HIF8:
        return HIF8_VALUES[to_hif8(x * scale).long()] / scale
    return (x * scale).to(E4M3).double() / scale


# ---- npu_quant_fusion_attention
def by_rows(scale, length):
    """One scale for each row, from blocks of 128, 256 or 512 rows."""
    block = next(n for n in (128, 256, 512) if -(-length // n) == scale.shape[2])
    return scale.double().repeat_interleave(block, 2)[:, :, :length]


def bnsd(x, layout, heads):
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "BSH":
        return x.unflatten(2, (heads, -1)).transpose(1, 2)
    if layout == "SBH":
        return x.unflatten(2, (heads, -1)).permute(1, 2, 0, 3)
    return x


def back(x, layout):
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "BSH":
        return x.transpose(1, 2).flatten(2)
    if layout == "SBH":
        return x.permute(2, 0, 1, 3).flatten(2)
    return x


def quant_fusion(q, k, v, heads, layout, *, d_scale_q, d_scale_k, d_scale_v, p_scale=None, scale=1.0, query_dtype=None):  # fmt: skip
    q, k, v = (bnsd(decoded(x, query_dtype), layout, heads) for x in (q, k, v))
    group, rows, keys = heads // k.shape[1], q.shape[2], k.shape[2]
    q = q * by_rows(d_scale_q, rows)
    k = (k * by_rows(d_scale_k, keys)).repeat_interleave(group, 1)
    v = (v * by_rows(d_scale_v, keys)).repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * scale
    top = s.amax(-1, keepdim=True)
    p = torch.exp(s - top)
    total = p.sum(-1, keepdim=True)
    by = 1.0 if p_scale is None else float(p_scale)
    out = rounded(p, query_dtype, by) @ v / total
    eight = (*s.shape[:3], 8)
    return (
        back(out, layout),
        top.expand(eight),
        total.expand(eight),
        torch.empty(0).double(),
        0,
        0,
        0,
    )


Q8 = "npu_quant_fusion_attention"


def eight_bits(*size, kind=E4M3):
    x = rand(*size, low=-2, high=2)
    return to_hif8(x) if kind == HIF8 else x.to(E4M3)


def scales(*size):
    return rand(*size, low=0.25, high=1).float()


def given(heads, heads_k, rows, keys, block_v=256):
    return {
        "d_scale_q": scales(1, heads, -(-rows // 128), 1),
        "d_scale_k": scales(1, heads_k, -(-keys // 256), 1),
        "d_scale_v": scales(1, heads_k, -(-keys // block_v), 1),
        "scale": 0.25,
    }


# An eight-bit probability may round the other way: 1/16 of it. Results are bfloat16.
near = {"dtypes": ONE, "tolerance": 2e-2}
add(
    Q8,
    quant_fusion,
    *[eight_bits(1, 2, 5, 16) for _ in range(3)],
    2,
    "BNSD",
    **given(2, 2, 5, 5),
    **near,
)
add(Q8, quant_fusion, eight_bits(1, 5, 4, 16), eight_bits(1, 7, 2, 16), eight_bits(1, 7, 2, 16), 4, "BSND", label="groups",
    **given(4, 2, 5, 7), **near)  # fmt: skip
add(Q8, quant_fusion, eight_bits(1, 1, 150, 16), eight_bits(1, 1, 600, 16), eight_bits(1, 1, 600, 16), 1, "BNSD", label="blocks",
    **given(1, 1, 150, 600, 512), **near)  # fmt: skip
add(
    Q8,
    quant_fusion,
    *[eight_bits(1, 5, 32) for _ in range(3)],
    2,
    "BSH",
    label="bsh",
    **given(2, 2, 5, 5),
    **near,
)
add(Q8, quant_fusion, *[eight_bits(1, 2, 5, 16, kind=HIF8) for _ in range(3)], 2, "BNSD", query_dtype=HIF8, label="hif8",
    p_scale=torch.tensor([16.0]), **given(2, 2, 5, 5), **near)  # fmt: skip


def quant_fusion_grads(q, k, v, dy, heads, layout, d_scale_q, d_scale_k, d_scale_v, d_scale_dy, *, p_scale=None, ds_scale=None,
                       softmax_max, softmax_sum, attention_in, scale_value=1.0, query_dtype=None):  # fmt: skip
    q, k, v, dy = (bnsd(decoded(x, query_dtype), layout, heads) for x in (q, k, v, dy))
    out = bnsd(attention_in.double(), layout, heads)
    group, rows, keys = heads // k.shape[1], q.shape[2], k.shape[2]
    q, dy = q * by_rows(d_scale_q, rows), dy * by_rows(d_scale_dy, rows)
    k = (k * by_rows(d_scale_k, keys)).repeat_interleave(group, 1)
    v = (v * by_rows(d_scale_v, keys)).repeat_interleave(group, 1)
    top, total = softmax_max[..., :1].double(), softmax_sum[..., :1].double()
    p = torch.exp(q @ k.transpose(-1, -2) * scale_value - top) / total
    by, by_s = (1.0 if s is None else float(s) for s in (p_scale, ds_scale))
    dv = rounded(p, query_dtype, by).transpose(-1, -2) @ dy
    dp = dy @ v.transpose(-1, -2)
    ds = p * (dp - (out * dy).sum(-1, keepdim=True))
    ds = rounded(ds, query_dtype, by_s) * scale_value
    grads = [back(ds @ k, layout)]
    for x in (ds.transpose(-1, -2) @ q, dv):
        grads.append(back(x.unflatten(1, (-1, group)).sum(2), layout))
    return (*grads, None, None, None, None)


def _backward_case(label, q, k, v, heads, heads_k, layout, rows, keys, kind=None, **more):
    known = given(heads, heads_k, rows, keys)
    out, top, total, *_ = quant_fusion(q, k, v, heads, layout, query_dtype=kind, **known)
    scale = known.pop("scale")
    dy = eight_bits(*out.shape, kind=kind or E4M3)
    add(f"{Q8}_backward", quant_fusion_grads, q, k, v, dy, heads, layout, *known.values(), scales(1, heads, 1, 1),
        softmax_max=top.float(), softmax_sum=total.float(), attention_in=out.to(torch.bfloat16), scale_value=scale,
        p_scale=torch.tensor([16.0]), ds_scale=torch.tensor([32.0]), label=label, query_dtype=kind, dtypes=ONE,
        tolerance=3e-2, **more)  # fmt: skip


_backward_case("", *[eight_bits(1, 2, 5, 16) for _ in range(3)], 2, 2, "BNSD", 5, 5)
_backward_case("groups", eight_bits(1, 5, 4, 16), eight_bits(1, 7, 2, 16), eight_bits(1, 7, 2, 16), 4, 2, "BSND", 5, 7)  # fmt: skip
_backward_case(
    "hif8", *[eight_bits(1, 2, 5, 16, kind=HIF8) for _ in range(3)], 2, 2, "BNSD", 5, 5, HIF8
)


# ---- npu_kv_quant_sparse_flash_attention
def packed(values, ropes, scale):
    """Rows of 656 bytes: 512 values, 64 rope numbers of 16 bits, 4 scales of 32."""
    parts = (values.view(torch.int8), ropes.view(torch.int8), scale.float().view(torch.int8))
    return torch.cat([p.reshape(*values.shape[:-1], -1) for p in parts], -1)


def unpacked(rows, key_dtype, dtype):
    values = rows[..., :512]
    if key_dtype == HIF8:
        values = HIF8_VALUES[values.contiguous().view(torch.uint8).long()]
    elif key_dtype in (24, 292):
        values = values.contiguous().view(E4M3).double()
    ropes = rows[..., 512:640].contiguous().view(dtype).double()
    scale = rows[..., 640:].contiguous().view(torch.float32).double()
    nope = values.double() * scale.repeat_interleave(128, -1)
    return nope.to(dtype).double(), ropes


def kv_quant(dtype):
    def reference(q, k, v, ids, scale, key_mode, value_mode, *, block_table=None, actual_seq_lengths_query=None,
                  actual_seq_lengths_kv=None, sparse_block_size=1, layout_query="BSND", layout_kv="BSND", sparse_mode=3,
                  attention_mode=2, quant_scale_repo_mode=1, tile_size=128, rope_head_dim=64, key_dtype=None, value_dtype=None,
                  sinks=None):  # fmt: skip
        outs = []
        for qs, rows, chosen in zip(
            sequences(q.double(), layout_query, actual_seq_lengths_query),
            sequences(k, layout_kv, actual_seq_lengths_kv, block_table),
            sequences(ids, layout_query, actual_seq_lengths_query),
            strict=True,
        ):
            nope, ropes = unpacked(rows[:, 0], key_dtype, dtype)
            keys = torch.cat((nope, ropes), -1)
            out = torch.zeros(*qs.shape[:2], 512, dtype=torch.float64)
            for i in range(len(qs)):
                js = listed(chosen, i, 0, sparse_block_size, len(keys), sparse_mode == 3, len(qs))
                for n in range(qs.shape[1]):
                    if js:
                        s = keys[js] @ qs[i, n] * scale
                        every = s if sinks is None else torch.cat((s, sinks[n : n + 1].double()))
                        e = torch.exp(s - every.max()) / torch.exp(every - every.max()).sum()
                        out[i, n] = e @ nope[js]
            outs.append(out)
        return together(outs, q, layout_query, actual_seq_lengths_query)

    return reference


KV8 = "npu_kv_quant_sparse_flash_attention"
_ids = choose(6, 6, 2, 3, 1, 5)
_lens = {"actual_seq_lengths_query": torch.tensor([3, 2], dtype=torch.int32),
         "actual_seq_lengths_kv": torch.tensor([6, 5], dtype=torch.int32)}  # fmt: skip


def rows_of(*size, dtype=torch.bfloat16, kind=None):
    values = rand(*size, 512, low=-1, high=1)
    values = {None: lambda: torch.round(values * 100).to(torch.int8), HIF8: lambda: to_hif8(values),
              24: lambda: values.to(E4M3)}[kind]()  # fmt: skip
    by = 1 / 100 if kind is None else 1.0
    return packed(values, rand(*size, 64, low=-1, high=1).to(dtype), scales(*size, 4) * by)


def queries(*size, dtype=torch.bfloat16):
    return rand(*size, 576, low=-0.25, high=0.25).to(dtype)


# Sixteen-bit queries only: the rows hold numbers of their dtype, P is rounded to it.
for _dtype in (torch.bfloat16, torch.float16):
    _rows = rows_of(2, 6, 1, dtype=_dtype)
    _modes = {"attention_mode": 2, "dtypes": ONE, "tolerance": 2e-2}
    _q = queries(2, 3, 4, dtype=_dtype)
    _name = str(_dtype).removeprefix("torch.")
    add(
        KV8,
        kv_quant(_dtype),
        _q,
        _rows,
        _rows,
        _ids,
        0.1,
        2,
        2,
        sparse_mode=0,
        label=_name,
        **_modes,
    )
    add(
        KV8,
        kv_quant(_dtype),
        _q,
        _rows,
        _rows,
        _ids,
        0.1,
        2,
        2,
        sinks=rand(4).float(),
        label=f"{_name}-sinks",
        **_modes,
    )
_pages = rows_of(6, 2, 1)
_all = torch.arange(5, dtype=torch.int32).expand(2, 3, 1, 5).clone()
add(KV8, kv_quant(torch.bfloat16), queries(2, 3, 4), _pages, _pages, _all, 0.1, 2, 2, layout_kv="PA_BSND", block_table=TABLE,
    label="paged", **_lens, **_modes)  # fmt: skip
for _kind, _name in ((HIF8, "hif8"), (24, "fp8")):
    _rows = rows_of(2, 6, 1, kind=_kind)
    add(KV8, kv_quant(torch.bfloat16), queries(2, 3, 4), _rows, _rows, _ids, 0.1, 2, 2, key_dtype=_kind, value_dtype=_kind,
        sparse_mode=0, label=_name, **_modes)  # fmt: skip
