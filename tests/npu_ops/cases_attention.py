# SPDX-License-Identifier: Apache-2.0
"""Attention, row by row as the documents define it."""

import torch
from table import add, ints, rand

FAR = 2147483647
MIN = torch.finfo(torch.float32).min


def split(x, layout, heads):
    """(B, N, S, D)"""
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.permute(0, 2, 1, 3)
    if layout == "BSH":
        return x.reshape(x.shape[0], x.shape[1], heads, -1).permute(0, 2, 1, 3)
    return x.reshape(x.shape[0], x.shape[1], heads, -1).permute(1, 2, 0, 3)


def join(x, layout):
    if layout == "BNSD":
        return x
    if layout == "NBSD":
        return x.permute(1, 0, 2, 3)
    if layout == "BSND":
        return x.permute(0, 2, 1, 3)
    if layout == "BSH":
        x = x.permute(0, 2, 1, 3)
    else:
        x = x.permute(2, 0, 1, 3)
    return x.reshape(x.shape[0], x.shape[1], -1)


def kept(mode, i, j, sq, skv, pre, next_, mask, b, n, prefix):
    d = skv - sq
    if mask is None:
        return True

    def given():
        m = (
            mask
            if mask.dim() == 2
            else mask[b if mask.shape[0] > 1 else 0, n if mask.shape[1] > 1 else 0]
        )
        return not bool(m[i, j])

    return {
        0: lambda: given() and -pre <= j - i <= next_,
        1: given,
        2: lambda: j <= i,
        3: lambda: j <= i + d,
        4: lambda: -pre <= j - (i + d) <= next_,
        5: given,
        6: lambda: j <= i + d or j < prefix[b],
    }[mode]()


def attention(
    q,
    k,
    v,
    *,
    scale,
    mode=0,
    mask=None,
    pre=FAR,
    next_=FAR,
    pse=None,
    pse_type=1,
    prefix=None,
    sink=None,
):
    """(B, N, S, D) tensors: out, row maximum, row sum."""
    B, N, sq, _ = q.shape
    group, skv = N // k.shape[1], k.shape[2]
    outs, ms, sums = [], [], []
    for b in range(B):
        for n in range(N):
            for i in range(sq):
                logits, values = [], []
                for j in range(skv):
                    if not kept(mode, i, j, sq, skv, pre, next_, mask, b, n, prefix):
                        continue
                    s = q[b, n, i] @ k[b, n // group, j]
                    extra = 0
                    if pse is not None:
                        extra = pse[
                            b if pse.shape[0] > 1 else 0, n, i if pse.shape[2] > 1 else 0, j
                        ]
                    logits.append((s + extra) * scale if pse_type == 1 else s * scale + extra)
                    values.append(v[b, n // group, j])
                if not logits:
                    outs.append(q[b, n, i].new_zeros(v.shape[-1]) + 0 * q[b, n, i].sum())
                    ms.append(torch.tensor(MIN, dtype=torch.float64))
                    sums.append(torch.tensor(0.0, dtype=torch.float64))
                    continue
                every = [*logits, sink[n]] if sink is not None else logits
                top = torch.stack(every).max().detach()
                total = torch.exp(torch.stack(every) - top).sum()
                p = torch.exp(torch.stack(logits) - top) / total
                outs.append((p[:, None] * torch.stack(values)).sum(0))
                ms.append(top)
                sums.append(total)
    shape = (B, N, sq)
    return (
        torch.stack(outs).reshape(*shape, -1),
        torch.stack(ms).reshape(shape),
        torch.stack(sums).reshape(shape),
    )


def eight(x):
    return x.detach()[..., None].expand(*x.shape, 8)


def fusion(
    q, k, v, heads, layout, pse=None, padding_mask=None, atten_mask=None, scale=1.0, sparse_mode=0,
    pre_tockens=FAR, next_tockens=FAR, pre_tokens=FAR, next_tokens=FAR, prefix=None, sink=None,
    actual_seq_qlen=None, actual_seq_kvlen=None, softmax_layout="", pse_type=1, query_rope=None,
    key_rope=None, **rest,
):  # fmt: skip
    if query_rope is not None:
        q, k = torch.cat((q, query_rope), -1), torch.cat((k, key_rope), -1)
    options = {"scale": scale, "pse": pse, "pse_type": pse_type, "sink": sink}
    pre, next_ = min(pre_tockens, pre_tokens), min(next_tockens, next_tokens)
    layout = layout.upper()
    numels = 0
    if layout != "TND":
        d = q.shape[-1] // heads if q.dim() == 3 else q.shape[-1]
        kv = k.shape[-1] // d if k.dim() == 3 else 0
        q4, k4, v4 = split(q, layout, heads), split(k, layout, kv), split(v, layout, kv)
        out, m, s = attention(
            q4,
            k4,
            v4,
            mode=sparse_mode,
            mask=atten_mask,
            pre=pre,
            next_=next_,
            prefix=prefix,
            **options,
        )
        numels = q4.shape[0] * heads * q4.shape[2] * k4.shape[2]
        return join(out, layout), eight(m), eight(s), None, 0, 0, numels
    outs, ms, sums, qs, ks = [], [], [], 0, 0
    for i, (qe, ke) in enumerate(zip(actual_seq_qlen, actual_seq_kvlen)):
        mode = sparse_mode
        if mode == 7:
            mode = 4 if i == len(actual_seq_qlen) - 1 else 3
        elif mode == 8:
            mode = 4 if i == 0 else 2
        parts = [x.permute(1, 0, 2)[None] for x in (q[qs:qe], k[ks:ke], v[ks:ke])]
        numels += heads * (qe - qs) * (ke - ks)
        if qe > qs:
            out, m, s = attention(
                *parts,
                mode=mode,
                mask=atten_mask,
                pre=pre,
                next_=next_,
                prefix=prefix and [prefix[i]],
                **options,
            )
            outs.append(out[0].permute(1, 0, 2))
            order = (1, 0, 2) if softmax_layout == "TND" else (0, 1, 2)
            ms.append(eight(m[0]).permute(order).reshape(-1, heads, 8))
            sums.append(eight(s[0]).permute(order).reshape(-1, heads, 8))
        qs, ks = qe, ke
    return torch.cat(outs), torch.cat(ms), torch.cat(sums), None, 0, 0, numels


TRI = torch.triu(torch.ones(2048, 2048, dtype=torch.bool), 1)
# Of sparse_mode 6: the triangle over a block whose left half is kept and right half dropped.
PREFIX_MASK = torch.cat((TRI, torch.arange(2048).expand(1024, 2048) >= 1024))
RANDOM = ints(0, 3, 2, 1, 5, 7) == 0
F = "npu_fusion_attention"
bnsd = (rand(2, 4, 5, 8), rand(2, 2, 7, 8), rand(2, 2, 7, 6))
add(F, fusion, *bnsd, 4, "BNSD", scale=0.3, label="gqa", grad=(0, 1, 2))
add(
    F,
    fusion,
    rand(2, 5, 32),
    rand(2, 7, 16),
    rand(2, 7, 16),
    4,
    "BSH",
    scale=0.3,
    label="bsh",
    grad=(0, 1, 2),
)
add(
    F,
    fusion,
    rand(5, 2, 32),
    rand(7, 2, 32),
    rand(7, 2, 32),
    4,
    "SBH",
    scale=0.3,
    label="sbh",
    grad=(0, 1, 2),
)
add(
    F,
    fusion,
    rand(2, 5, 4, 8),
    rand(2, 7, 4, 8),
    rand(2, 7, 4, 8),
    4,
    "bsnd",
    scale=0.3,
    label="bsnd",
)
for mode, extra in ((0, {}), (0, {"pre_tockens": 2, "next_tockens": 1}), (1, {}), (5, {})):
    add(
        F,
        fusion,
        *bnsd,
        4,
        "BNSD",
        None,
        None,
        RANDOM,
        scale=0.3,
        sparse_mode=mode,
        label=f"mode{mode}{len(extra)}",
        grad=(0, 1, 2),
        **extra,
    )
for mode, extra in (
    (2, {}),
    (3, {}),
    (4, {"pre_tockens": 3, "next_tockens": -1}),
    (6, {"prefix": [3, 5]}),
):
    add(
        F,
        fusion,
        *bnsd,
        4,
        "BNSD",
        None,
        None,
        PREFIX_MASK if mode == 6 else TRI,
        scale=0.3,
        sparse_mode=mode,
        label=f"mode{mode}",
        grad=(0, 1, 2),
        **extra,
    )
long = (rand(1, 2, 7, 8), rand(1, 2, 4, 8), rand(1, 2, 4, 8))
add(
    F,
    fusion,
    *long,
    2,
    "BNSD",
    None,
    None,
    TRI,
    scale=0.3,
    sparse_mode=3,
    label="rows-without-keys",
    grad=(0, 1, 2),
)
add(F, fusion, *bnsd, 4, "BNSD", rand(2, 4, 5, 7), scale=0.3, label="pse", grad=(0, 1, 2, 5))
add(F, fusion, *bnsd, 4, "BNSD", rand(1, 4, 5, 7), scale=0.3, label="pse1", grad=(5,))
add(F, fusion, *bnsd, 4, "BNSD", rand(2, 4, 1, 7), scale=0.3, label="pse-row", grad=(5,))
add(F, fusion, *bnsd, 4, "BNSD", scale=0.3, sink=rand(4), label="sink")
packed = (rand(9, 4, 8), rand(12, 2, 8), rand(12, 2, 8))
lengths = {"actual_seq_qlen": [2, 5, 5, 9], "actual_seq_kvlen": [4, 7, 8, 12]}
add(F, fusion, *packed, 4, "TND", scale=0.3, label="tnd", grad=(0, 1, 2), **lengths)
add(F, fusion, *packed, 4, "TND", scale=0.3, label="tnd-stats", softmax_layout="TND", **lengths)
for mode, extra in (
    (2, {}),
    (3, {}),
    (4, {"pre_tockens": 2, "next_tockens": 0}),
    (7, {"pre_tockens": 2, "next_tockens": 1}),
    (8, {"pre_tockens": 1, "next_tockens": 2}),
):
    add(
        F,
        fusion,
        *packed,
        4,
        "TND",
        None,
        None,
        TRI,
        scale=0.3,
        sparse_mode=mode,
        label=f"tnd{mode}",
        grad=(0, 1, 2),
        **extra,
        **lengths,
    )
V2 = "npu_fusion_attention_v2"
for pse_type in (0, 1):
    add(
        V2,
        fusion,
        *bnsd,
        4,
        "BNSD",
        pse=rand(2, 4, 5, 7),
        scale=0.3,
        pse_type=pse_type,
        label=f"pse-type{pse_type}",
        grad=(0, 1, 2),
    )
add(
    V2,
    fusion,
    rand(2, 4, 5, 8),
    rand(2, 2, 7, 8),
    rand(2, 2, 7, 8),
    4,
    "BNSD",
    query_rope=rand(2, 4, 5, 4),
    key_rope=rand(2, 2, 7, 4),
    scale=0.3,
    label="rope",
    grad=(0, 1, 2),
)


def _stats(kwargs, q, k, v, heads, layout):
    with torch.no_grad():
        names = {"scale_value": "scale"}
        out, m, s = fusion(
            q, k, v, heads, layout, **{names.get(a, a): b for a, b in kwargs.items()}
        )[:3]
    return {"softmax_max": m.clone(), "softmax_sum": s.clone(), "attention_in": out.clone()}


def fusion_grad(
    q,
    k,
    v,
    dy,
    heads,
    layout,
    *,
    scale_value,
    softmax_max,
    softmax_sum,
    attention_in,
    pse=None,
    sink=None,
    query_rope=None,
    key_rope=None,
    **rest,
):
    leaves = [
        x.clone().requires_grad_() if x is not None else None
        for x in (q, k, v, pse, query_rope, key_rope, sink)
    ]
    q, k, v, pse, query_rope, key_rope, sink = leaves
    out = fusion(
        q,
        k,
        v,
        heads,
        layout,
        scale=scale_value,
        pse=pse,
        sink=sink,
        query_rope=query_rope,
        key_rope=key_rope,
        **rest,
    )[0]
    given = [x for x in leaves if x is not None]
    grads = iter(torch.autograd.grad(out, given, dy, allow_unused=True))
    q, k, v, pse, qr, kr, sink = (None if x is None else next(grads) for x in leaves)
    empty = torch.empty(0, dtype=torch.float64)
    tail = empty if pse is None else pse
    last = empty if sink is None else sink
    if query_rope is not None or "pse_type" in rest:
        return q, k, v, tail, empty if qr is None else qr, empty if kr is None else kr, last
    return q, k, v, tail, last


def add_grad(op, q, k, v, heads, layout, label, **kwargs):
    stats = _stats(kwargs, q, k, v, heads, layout)
    dy = (
        torch.round(
            torch.rand(
                stats["attention_in"].shape,
                generator=torch.Generator().manual_seed(1),
                dtype=torch.float64,
            )
            * 32
        )
        / 32
    )
    add(
        op,
        fusion_grad,
        q,
        k,
        v,
        dy,
        heads,
        layout,
        label=label,
        dtypes=(torch.float32,),
        **kwargs,
        **stats,
    )


add_grad("npu_fusion_attention_grad", *bnsd, 4, "BNSD", "gqa", scale_value=0.3)
add_grad(
    "npu_fusion_attention_grad",
    *bnsd,
    4,
    "BNSD",
    "pse-sink",
    scale_value=0.3,
    pse=rand(1, 4, 5, 7),
    sink=rand(4),
)
add_grad(
    "npu_fusion_attention_grad",
    *packed,
    4,
    "TND",
    "tnd",
    scale_value=0.3,
    atten_mask=TRI,
    sparse_mode=3,
    **lengths,
)
add_grad(
    "npu_fusion_attention_grad_v2",
    *bnsd,
    4,
    "BNSD",
    "pse0",
    scale_value=0.3,
    pse=rand(2, 4, 5, 7),
    pse_type=0,
)
