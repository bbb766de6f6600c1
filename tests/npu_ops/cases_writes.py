# SPDX-License-Identifier: Apache-2.0
"""Writes at positions, slices, and attention with lengths as tensors."""

import cases_attention as attention
import torch
from table import add, int8, ints, rand

ONE = (torch.float32,)


# ---- positions
for name in ("_npu_index_add", "_npu_index_add_"):
    add(
        name,
        lambda x, i, s, alpha=1: x.index_put((i,), alpha * s, accumulate=True),
        rand(5, 3),
        torch.tensor([1, 3, 1]),
        rand(3, 3),
        alpha=2,
    )


def scattered(x, indices, updates, dim):
    out = x.clone()
    for j, (i, u) in enumerate(zip(indices.tolist(), updates)):
        out[(i, j) if dim == 0 else (j, i)] = u
    return out


add("npu_scatter", scattered, rand(2, 3), torch.tensor([0, 1, 1], dtype=torch.int32), rand(3), 0)
add(
    "npu_scatter",
    scattered,
    rand(2, 3),
    torch.tensor([2, 0], dtype=torch.int32),
    rand(2),
    -1,
    label="last",
)


def listed(tensors, indices, updates, mask=None):
    outs = [x.clone() for x in tensors]
    for i, x in enumerate(outs):
        if mask is None or mask[i]:
            x[:, indices[i] : indices[i] + updates.shape[2]] = updates[i]
    return outs


add(
    "npu_scatter_list",
    listed,
    [rand(2, 6, 4), rand(2, 5, 4)],
    torch.tensor([1, 3]),
    rand(2, 2, 2, 4),
)
add(
    "npu_scatter_list",
    listed,
    [rand(2, 6, 4), rand(2, 5, 4)],
    torch.tensor([1, 3]),
    rand(2, 2, 2, 4),
    torch.tensor([1, 0], dtype=torch.uint8),
    label="mask",
)


def quant_scattered(x, indices, updates, scales, zero=None):
    y = updates / scales
    y, out = int8(y if zero is None else y + zero), x.clone()
    for b, start in enumerate(indices.tolist()):
        out[b, :, start : start + y.shape[2]] = y[b]
    return out


for name in ("npu_quant_scatter", "npu_quant_scatter_"):
    add(
        name,
        quant_scattered,
        ints(-9, 9, 2, 1, 6, 4, dtype=torch.int8),
        torch.tensor([1, 3]),
        rand(2, 1, 2, 4),
        rand(4, low=0.03125, high=0.25),
        rand(4),
        dtypes=ONE,
    )
KEYS, CACHE = rand(4, 2, 8), rand(3, 4, 2, 8)


def paged(key, slots, *, key_cache):
    out = key_cache.clone()
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            out[slot // 4, slot % 4] = key[t]
    return out


add("npu_scatter_pa_cache.value", paged, KEYS, torch.tensor([3, -1, 0, 10]), key_cache=CACHE)
SLICES = rand(4, 5, 6)
add("npu_indexing", lambda x, b, e, s: x[1:3, ::2], SLICES, [1, 0], [3, 5], [1, 2])
add(
    "npu_indexing",
    lambda x, b, e, s, *m: x[:3, 2:, 4],
    SLICES,
    [1, 2, 4],
    [3, 4, 5],
    [1, 1, 1],
    1,
    2,
    0,
    0,
    4,
    label="masks",
)
for name in ("npu_indexing.out", "npu_indexing_trans_contiguous.out"):
    add(
        name,
        lambda x, b, e, s, *, out: x[1:3, ::2],
        SLICES,
        [1, 0],
        [3, 5],
        [1, 2],
        out=rand(2, 3, 6),
    )


def filled(x, start, end, value, axis=-1):
    out = x.clone()
    for d in range(start.shape[0]):
        for i in range(start.shape[1]):
            out[i, int(start[d, i]) : int(end[d, i])] = value[d]
    return out


add(
    "npu_masked_fill_range",
    filled,
    rand(4, 5),
    torch.tensor([[0, 1, 2]]),
    torch.tensor([[1, 3, 5]]),
    rand(1),
    1,
)
add(
    "npu_masked_fill_range",
    filled,
    rand(3, 5),
    torch.tensor([[0, 1, 2], [4, 4, 4]]),
    torch.tensor([[1, 3, 5], [5, 4, 5]]),
    rand(2),
    label="two",
)

# ---- attention
Q, KK, V = rand(2, 2, 5, 8), rand(2, 2, 6, 8), rand(2, 2, 6, 8)
add(
    "npu_fusion_attention_v3",
    lambda *a, **k: (*attention.fusion(*a, **k)[:3], None, None, None),
    Q,
    KK,
    V,
    2,
    "BNSD",
    scale=0.25,
    grad=(0, 1, 2),
)
PACKED = (rand(9, 2, 8), rand(9, 2, 8), rand(9, 2, 8), 2, "TND")
ENDS = torch.tensor([4, 9])


def packed(*a, actual_seq_qlen, actual_seq_kvlen, **k):
    return (
        *attention.fusion(
            *a,
            actual_seq_qlen=actual_seq_qlen.tolist(),
            actual_seq_kvlen=actual_seq_kvlen.tolist(),
            **k,
        )[:3],
        None,
        None,
        None,
    )


add(
    "npu_fusion_attention_v3",
    packed,
    *PACKED,
    scale=0.25,
    actual_seq_qlen=ENDS,
    actual_seq_kvlen=ENDS,
    label="packed",
    dtypes=ONE,
    fake=False,
)


def attention_grads(q, k, v, dy, n, layout, *, scale_value, **rest):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    out = attention.fusion(*leaves, n, layout, scale=scale_value)[0]
    return (*torch.autograd.grad(out, leaves, dy), None, None)


_out = attention.fusion(Q, KK, V, 2, "BNSD", scale=0.25)
add(
    "npu_fusion_attention_grad_v3",
    attention_grads,
    Q,
    KK,
    V,
    rand(2, 2, 5, 8),
    2,
    "BNSD",
    softmax_max=_out[1],
    softmax_sum=_out[2],
    attention_in=_out[0],
    scale_value=0.25,
    dtypes=ONE,
)
