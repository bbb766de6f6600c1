# SPDX-License-Identifier: Apache-2.0
"""Attention for inference, and merging of parts."""

import torch
from cases_attention import FAR, RANDOM, TRI, attention, bnsd, join, split
from table import add, rand


def infer(q, k, v, *, num_heads, scale, input_layout="BSH", num_key_value_heads=0, actual_seq_lengths=None, actual_seq_lengths_kv=None,
          atten_mask=None, sparse_mode=0, pse_shift=None, softmax_lse_flag=False, pre_tokens=FAR, next_tokens=FAR, sink=None):  # fmt: skip
    kv = num_key_value_heads or num_heads
    source, _, target = input_layout.partition("_")
    target = target or source
    q4, k4, v4 = split(q, source, num_heads), split(k, source, kv), split(v, source, kv)
    B, _, longest, _ = q4.shape
    outs, lses = [], []
    for b in range(B):
        sq = actual_seq_lengths[b] if actual_seq_lengths else longest
        lengths = actual_seq_lengths_kv or [k4.shape[2]]
        skv = lengths[b] if len(lengths) > 1 else lengths[0]
        pse = None if pse_shift is None else pse_shift[b : b + 1]
        mask = atten_mask if atten_mask is None or atten_mask.dim() == 2 else atten_mask[b : b + 1]
        out, m, s = attention(q4[b : b + 1, :, :sq], k4[b : b + 1, :, :skv], v4[b : b + 1, :, :skv], scale=scale, mode=sparse_mode,
                              mask=mask, pse=pse, pse_type=0, pre=pre_tokens, next_=next_tokens, sink=sink)  # fmt: skip
        whole = torch.zeros(1, num_heads, longest, v4.shape[-1], dtype=torch.float64)
        whole[:, :, :sq] = out
        lse = torch.zeros(1, num_heads, longest, 1, dtype=torch.float64)
        lse[:, :, :sq, 0] = m + torch.log(s)
        outs.append(whole)
        lses.append(lse)
    lse = torch.cat(lses) if softmax_lse_flag else torch.empty(0, dtype=torch.float64)
    return join(torch.cat(outs), target), lse


I = "npu_fused_infer_attention_score"  # noqa: E741
flat4 = (rand(2, 5, 32), rand(2, 7, 16), rand(2, 7, 16))
base = {"num_heads": 4, "num_key_value_heads": 2, "scale": 0.3}
add(I, infer, *flat4, **base, label="bsh", softmax_lse_flag=True)
add(
    I,
    infer,
    *flat4,
    **base,
    label="lengths",
    actual_seq_lengths=[5, 3],
    actual_seq_lengths_kv=[7, 4],
    softmax_lse_flag=True,
)
add(
    I,
    infer,
    *flat4,
    **base,
    label="causal",
    atten_mask=TRI,
    sparse_mode=3,
    actual_seq_lengths=[5, 3],
    actual_seq_lengths_kv=[7, 4],
)
# One row of query: the band does not count.
add(
    I,
    lambda *x, atten_mask, sparse_mode, pre_tokens, **rest: infer(*x, **rest),
    flat4[0][:, :1],
    *flat4[1:],
    **base,
    label="one-row",
    atten_mask=TRI,
    sparse_mode=2,
    pre_tokens=1,
)
add(
    I,
    infer,
    *flat4,
    **base,
    label="band",
    atten_mask=TRI,
    sparse_mode=4,
    pre_tokens=2,
    next_tokens=1,
)
add(
    I,
    infer,
    *flat4,
    **base,
    label="mask-pse",
    atten_mask=RANDOM,
    sparse_mode=1,
    pse_shift=rand(2, 4, 5, 7),
)
for pair in ("BSH_BNSD", "BSH_NBSD"):
    add(I, infer, *flat4, **base, label=pair, input_layout=pair)
add(I, infer, *bnsd, **base, label="bnsd-bsnd", input_layout="BNSD_BSND")


def infer_v2(
    q,
    k,
    v,
    *,
    num_query_heads,
    softmax_scale,
    actual_seq_kvlen=None,
    learnable_sink=None,
    return_softmax_lse=False,
    **rest,
):
    return infer(q, k, v, num_heads=num_query_heads, scale=softmax_scale, actual_seq_lengths_kv=actual_seq_kvlen,
                 sink=learnable_sink, softmax_lse_flag=return_softmax_lse, **rest)  # fmt: skip


add("npu_fused_infer_attention_score_v2", infer_v2, *flat4, num_query_heads=4, num_key_value_heads=2, softmax_scale=0.3,
    actual_seq_kvlen=[7, 4], learnable_sink=rand(4), return_softmax_lse=True)  # fmt: skip


def paged(
    q, k, v, *, num_heads, scale, block_table, actual_seq_lengths_kv, num_key_value_heads, **rest
):
    size, kv = k.shape[1], num_key_value_heads
    longest = max(actual_seq_lengths_kv)
    caches = []
    for cache in (k, v):
        rows = torch.zeros(q.shape[0], longest, cache.shape[2], dtype=torch.float64)
        for b, n in enumerate(actual_seq_lengths_kv):
            for t in range(n):
                rows[b, t] = cache[block_table[b, t // size], t % size]
        caches.append(rows)
    return infer(
        q,
        *caches,
        num_heads=num_heads,
        scale=scale,
        num_key_value_heads=kv,
        actual_seq_lengths_kv=actual_seq_lengths_kv,
    )


TABLE = torch.tensor([[3, 0], [1, 4]], dtype=torch.int32)
add(
    I,
    paged,
    rand(2, 1, 32),
    rand(5, 4, 16),
    rand(5, 4, 16),
    **base,
    block_table=TABLE,
    actual_seq_lengths_kv=[7, 3],
    block_size=4,
    label="pages",
)


def prompt(q, k, v, *, scale_value, next_tokens=0, **rest):
    return infer(q, k, v, scale=scale_value, next_tokens=next_tokens, **rest)[0]


add(
    "npu_prompt_flash_attention",
    prompt,
    *flat4,
    num_heads=4,
    num_key_value_heads=2,
    scale_value=0.3,
    label="full",
)
add(
    "npu_prompt_flash_attention",
    prompt,
    *flat4,
    num_heads=4,
    num_key_value_heads=2,
    scale_value=0.3,
    atten_mask=RANDOM,
    sparse_mode=0,
    next_tokens=FAR,
    label="mask",
)


def step(q, k, v, *, scale_value, actual_seq_lengths=None, **rest):
    return infer(q, k, v, scale=scale_value, actual_seq_lengths_kv=actual_seq_lengths, **rest)[0]


add(
    "npu_incre_flash_attention",
    step,
    rand(2, 1, 32),
    rand(2, 7, 16),
    rand(2, 7, 16),
    num_heads=4,
    num_key_value_heads=2,
    scale_value=0.3,
    actual_seq_lengths=[7, 2],
)


def ring(o1, m1, s1, o2, m2, s2, **rest):
    m = torch.maximum(m1, m2)
    a, b = s1 * torch.exp(m1 - m), s2 * torch.exp(m2 - m)
    S, B, H = o1.shape
    N = m1.shape[1]
    out = torch.empty_like(o1)
    for t in range(S):
        for i in range(B):
            for h in range(H):
                n = h // (H // N)
                x, y = a[i, n, t, 0], b[i, n, t, 0]
                out[t, i, h] = (o1[t, i, h] * x + o2[t, i, h] * y) / (x + y)
    return out, m, a + b


def stat(low):
    return rand(2, 2, 3, 1, low=low, high=low + 2).expand(2, 2, 3, 8).clone()


add(
    "npu_ring_attention_update",
    ring,
    rand(3, 2, 8),
    stat(-1),
    stat(1),
    rand(3, 2, 8),
    stat(-1),
    stat(1),
    dtypes=(torch.float32,),
)


def merge(lses, outs, kind):
    weights = [torch.exp(x) for x in lses]
    total = sum(weights)
    out = sum(w[:, None] * o for w, o in zip(weights, outs)) / total[:, None]
    return out, torch.log(total) if kind == 1 else torch.empty(0, dtype=torch.float64)


for kind in (0, 1):
    add(
        "npu_attention_update",
        merge,
        [rand(5), rand(5), rand(5)],
        [rand(5, 4), rand(5, 4), rand(5, 4)],
        kind,
        label=f"type{kind}",
        dtypes=(torch.float32,),
    )
add("npu_attn_softmax_", lambda x: torch.softmax(x, -1), rand(2, 3, 4))


def atb_paged(q, kc, vc, kv_heads, heads, scale, table, lens, out):
    for t in range(q.shape[0]):
        for n in range(heads):
            g = n // (heads // kv_heads)
            ks = torch.stack(
                [kc[table[t, j // kc.shape[1]], j % kc.shape[1], g] for j in range(int(lens[t]))]
            )
            vs = torch.stack(
                [vc[table[t, j // kc.shape[1]], j % kc.shape[1], g] for j in range(int(lens[t]))]
            )
            out[t, n] = torch.softmax(ks @ q[t, n] * scale, 0) @ vs
    RESULT["paged"] = out


RESULT: dict = {}
LENS = torch.tensor([7, 3], dtype=torch.int32)
ATB = (rand(2, 4, 8), rand(5, 4, 2, 8), rand(5, 4, 2, 8), 2, 4, 0.3, TABLE, LENS)
UNPAD = (rand(5, 32), rand(5, 16), rand(5, 16), torch.tensor([2, 3], dtype=torch.int32), 0.3, 4, 2)
