# SPDX-License-Identifier: Apache-2.0
"""Attention of queries over listed keys, and along paths: one query row at a time."""

import torch
from table import add, ints, rand

ONE = (torch.float32,)


# ---- rows of packed, padded and paged layouts
def spans(x, layout, lengths):
    """(batch, first row, length) of each sequence; TND lengths are cumulative ends."""
    if layout == "TND":
        ends = [x.shape[0]] if lengths is None else [int(n) for n in lengths]
        starts = [0, *ends[:-1]]
        return [(0, s, e - s) for s, e in zip(starts, ends, strict=True)]
    full = [x.shape[1]] * x.shape[0] if lengths is None else [int(n) for n in lengths]
    return [(b, 0, n) for b, n in enumerate(full)]


def sequences(x, layout, lengths=None, table=None):
    """Rows (L, N, D) of each sequence."""
    if table is not None:
        size = x.shape[1]
        return [
            torch.stack([x[int(table[b, j // size]), j % size] for j in range(int(n))])
            if n
            else x[0, :0]
            for b, n in enumerate(lengths)
        ]
    rows = x if layout != "TND" else x[None]
    return [rows[b, s : s + n] for b, s, n in spans(x, layout, lengths)]


def together(parts, x, layout, lengths=None):
    """Results of the sequences where x's rows lie, zeros elsewhere."""
    whole = parts[0].new_zeros(*x.shape[: 1 if layout == "TND" else 2], *parts[0].shape[1:])
    places = spans(x, layout, lengths)
    rows = whole[None] if layout == "TND" else whole
    for part, (b, s, n) in zip(parts, places, strict=True):
        above, below = rows[b, :s], rows[b, s + n :]
        row = torch.cat((above, part, below))
        rows = torch.cat((rows[:b], row[None], rows[b + 1 :]))
    return rows[0] if layout == "TND" else rows


def attend(q, keys, values, scale, sink=None):
    """One query row over its keys: (out, maximum, sum); a sink adds to the sum alone."""
    if not len(keys):
        zero = (q * 0).sum()
        return zero + values.new_zeros(values.shape[-1]), zero - torch.inf, zero
    scores = keys @ q * scale
    every = scores if sink is None else torch.cat((scores, sink[None].double()))
    top = every.max().detach()
    total = torch.exp(every - top).sum()
    return (torch.exp(scores - top) / total) @ values, top, total


def attend_rows(q, k, v, chosen, scale, sinks=None):
    """q (S, N1, D), k and v (Lk, N2, D); chosen(i, key head) lists keys: (S, N1, Dv), (S, N1), (S, N1)."""
    group = q.shape[1] // k.shape[1]
    outs, tops, totals = [], [], []
    for i in range(q.shape[0]):
        for n in range(q.shape[1]):
            js = torch.tensor(chosen(i, n // group), dtype=torch.int64)
            sink = None if sinks is None else sinks[n]
            out, top, total = attend(
                q[i, n], k[:, n // group][js], v[:, n // group][js], scale, sink
            )
            outs.append(out)
            tops.append(top)
            totals.append(total)
    if not outs:
        return v.new_zeros(*q.shape[:2], v.shape[-1]), q.new_zeros(q.shape[:2]), q.new_zeros(q.shape[:2])  # fmt: skip
    return (
        torch.stack(outs).reshape(*q.shape[:2], -1),
        torch.stack(tops).reshape(q.shape[:2]),
        torch.stack(totals).reshape(q.shape[:2]),
    )


def backward_of(forward, places, results):
    """The reference of (inputs…): gradients of the forward's first result with the given one."""

    def call(grad, inputs, *rest, **kwargs):
        leaves = [x.clone().requires_grad_() if i in places else x for i, x in enumerate(inputs)]
        out = forward(*leaves, *rest, **kwargs)[results]
        return torch.autograd.grad(out, [leaves[i] for i in places], grad)

    return call


# ---- npu_block_sparse_attention
def block_sparse(q, k, v, mask, shape, *, q_input_layout="TND", kv_input_layout="TND", num_key_value_heads=1,
                 scale_value=0.0, inner_precise=1, actual_seq_lengths=None, actual_seq_lengths_kv=None, softmax_lse_flag=0):  # fmt: skip
    if q_input_layout == "BNSD":
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        ends, ends_kv, layout = actual_seq_lengths, actual_seq_lengths_kv, "BSND"
    else:
        ends = torch.tensor(actual_seq_lengths).cumsum(0)
        ends_kv = torch.tensor(actual_seq_lengths_kv).cumsum(0)
        layout = "TND"
    group = q.shape[-2] // k.shape[-2]
    outs, lses = [], []
    triples = zip(
        sequences(q, layout, ends),
        sequences(k, layout, ends_kv),
        sequences(v, layout, ends_kv),
        strict=True,
    )
    for b, (qs, ks, vs) in enumerate(triples):
        heads = []
        for n in range(qs.shape[1]):
            one = (qs[:, n : n + 1], ks[:, n // group][:, None], vs[:, n // group][:, None])

            def chosen(i, _, b=b, n=n, keys=ks.shape[0]):
                row = mask[b, n, i // shape[0]]
                return [j for j in range(keys) if row[j // shape[1]]]

            heads.append(attend_rows(*one, chosen, scale_value))
        outs.append(torch.cat([h[0] for h in heads], 1))
        lses.append(torch.cat([(h[1] + torch.log(h[2]))[..., None] for h in heads], 1))
    out, lse = together(outs, q, layout, ends), together(lses, q, layout, ends)
    if layout == "BSND":
        out, lse = out.transpose(1, 2), lse.transpose(1, 2)
    return out, lse.detach()


def block_sparse_grads(grad, q, k, v, out, lse, mask, shape, seq, seq_kv, layout, layout_kv, heads, scale):  # fmt: skip
    call = backward_of(block_sparse, (0, 1, 2), 0)
    return call(
        grad, (q, k, v), mask, shape or [128, 128], q_input_layout=layout, kv_input_layout=layout_kv,
        num_key_value_heads=heads, scale_value=scale, actual_seq_lengths=seq, actual_seq_lengths_kv=seq_kv,
    )  # fmt: skip


BLOCKS = "npu_block_sparse_attention"
# Every query of the first keeps some keys; in "empty-rows" one head drops all.
_mask = torch.tensor([[[[1, 0], [1, 1]], [[0, 1], [1, 0]]], [[[1, 1], [0, 0]], [[1, 0], [0, 0]]]])
_mask = _mask.to(torch.int8)
_tnd = (rand(7, 2, 8), rand(230, 1, 8), rand(230, 1, 6))
_lengths = {"actual_seq_lengths": [4, 3], "actual_seq_lengths_kv": [150, 80]}
_first = _mask.clone()
_first[1] = torch.tensor([[[1, 1], [1, 0]], [[1, 0], [1, 1]]])
add(BLOCKS, block_sparse, *_tnd, _first, [2, 128], scale_value=0.25, inner_precise=0, grad=(0, 1, 2), **_lengths)  # fmt: skip
add(BLOCKS, block_sparse, *_tnd, _mask, [2, 128], scale_value=0.25, inner_precise=0, label="empty-rows", **_lengths)  # fmt: skip
add(BLOCKS, block_sparse, *_tnd, _first, [2, 128], label="scale-0", inner_precise=0, softmax_lse_flag=1, **_lengths)  # fmt: skip
_bnsd = (rand(2, 4, 5, 8), rand(2, 2, 140, 8), rand(2, 2, 140, 8))
_wide = ints(0, 2, 2, 4, 2, 2, dtype=torch.int8)
_wide[..., 0] = 1
add(BLOCKS, block_sparse, *_bnsd, _wide, [3, 128], q_input_layout="BNSD", kv_input_layout="BNSD", label="bnsd",
    num_key_value_heads=2, scale_value=0.3, inner_precise=0, grad=(0, 1, 2))  # fmt: skip
# Queries head-major in memory.
_strided = rand(4, 2, 5, 8).transpose(0, 1)
add(BLOCKS, block_sparse, _strided, *_bnsd[1:], _wide, [3, 128], q_input_layout="BNSD", kv_input_layout="BNSD",
    label="strided", num_key_value_heads=2, scale_value=0.3, inner_precise=0)  # fmt: skip
_out, _lse = block_sparse(*_tnd, _first, [2, 128], scale_value=0.25, **_lengths)
add(f"{BLOCKS}_backward", block_sparse_grads, rand(7, 2, 6), *_tnd, _out, _lse, _first, [2, 128], [4, 3], [150, 80],
    "TND", "TND", 1, 0.25, keep=(5,))  # fmt: skip
_one = torch.ones(2, 4, 1, 2, dtype=torch.int8)
_out, _lse = block_sparse(*_bnsd, _one, [128, 128], q_input_layout="BNSD", num_key_value_heads=2, scale_value=0.3)  # fmt: skip
add(f"{BLOCKS}_backward", block_sparse_grads, rand(2, 4, 5, 8), *_bnsd, _out, _lse, _one, None, None, None,
    "BNSD", "BNSD", 2, 0.3, keep=(5,), label="shape-none")  # fmt: skip


# ---- npu_fused_floyd_attention
def floyd(q, k1, v1, k2, v2, *, atten_mask=None, scale_value=1.0):
    """Paths i → j → k: q at (i, k), k1 and v1 at (i, j), k2 and v2 at (j, k)."""
    steps = range(k1.shape[3])
    s = torch.stack([(q * (k1[:, :, :, j, None] + k2[:, :, j, None])).sum(-1) for j in steps], -1)
    if atten_mask is not None:
        s = s - 4e9 * atten_mask.double()
    s = s * scale_value
    top = s.amax(-1, keepdim=True).detach()
    e = torch.exp(s - top)
    total = e.sum(-1, keepdim=True)
    p = e / total
    out = sum(p[..., j, None] * (v1[:, :, :, j, None] + v2[:, :, j, None]) for j in steps)
    eight = (*s.shape[:-1], 8)
    return top.expand(eight), total.detach().expand(eight), out


def floyd_grads(grad, q, k1, v1, k2, v2, out, top, total, **rest):
    return backward_of(floyd, range(5), 2)(grad, (q, k1, v1, k2, v2), **rest)


FLOYD = "npu_fused_floyd_attention"
B, H, N, M, K, D = 1, 2, 3, 4, 5, 6
_floyd = (rand(B, H, N, M, D, low=-1, high=1), rand(B, H, N, K, D, low=-1, high=1), rand(B, H, N, K, D),
          rand(B, H, K, M, D, low=-1, high=1), rand(B, H, K, M, D))  # fmt: skip
_drop = torch.zeros(B, 1, N, 1, K, dtype=torch.bool)
_drop[0, 0, 0, 0, :3] = True
_drop[0, 0, 2, 0, 4] = True
add(FLOYD, floyd, *_floyd, grad=range(5))
add(FLOYD, floyd, *_floyd, atten_mask=_drop, scale_value=0.4, label="masked", grad=range(5))
for _rest in ({}, {"atten_mask": _drop, "scale_value": 0.4}):
    _top, _total, _out = floyd(*_floyd, **_rest)
    add(f"{FLOYD}_backward", floyd_grads, rand(B, H, N, M, D), *_floyd, _out, _top, _total, keep=(7, 8),
        label="masked" if _rest else "", **_rest)  # fmt: skip


# ---- npu_multi_head_attention_backward
def multi_head_grads(q, k, v, wq, wk, wv, wo, bq, bk, bv, bo, q_res, k_res, v_res, scores, kept, context, grad,
                     bits, n, size, src, tgt, p, wide):  # fmt: skip
    """Autograd of the layer; the additive mask is what the saved scores say."""
    batch = q.shape[0] // tgt
    leaves = [x.clone().requires_grad_() for x in (wq, wk, wv, wo, q, k, v, bq, bk, bv, bo)]
    wq, wk, wv, wo, q, k, v, bq, bk, bv, bo = leaves

    def heads(x, length):
        return x.reshape(batch, length, n, size).permute(0, 2, 1, 3)

    qs, ks = heads(q @ wq.T + bq, tgt) * size**-0.5, heads(k @ wk.T + bk, src)
    logits = torch.einsum("bnid,bnjd->bnij", qs, ks)
    mask = (torch.log(scores) - logits).detach()
    weights = torch.softmax(logits + mask, -1)
    if p > 0:
        keep = [(int(byte) >> bit) & 1 for byte in bits for bit in range(8)]
        weights = weights * torch.tensor(keep[: weights.numel()]).reshape(weights.shape) / (1 - p)
    out = torch.einsum("bnij,bnjd->bind", weights, heads(v @ wv.T + bv, src))
    y = out.reshape(batch * tgt, n * size) @ wo.T + bo
    found = list(torch.autograd.grad(y, leaves, grad))
    return found[:7] + [g[None] for g in found[7:]]


def _layer(p):
    n, size, src, tgt, batch = 2, 8, 5, 3, 2
    E = n * size
    q, k, v = rand(batch * tgt, E), rand(batch * src, E), rand(batch * src, E)
    weights = [rand(E, E, low=-0.5, high=0.5) for _ in range(4)]
    biases = [rand(E) for _ in range(4)]
    bits = ints(0, 256, 16, dtype=torch.uint8)

    def heads(x, length):
        return x.reshape(batch, length, n, size).permute(0, 2, 1, 3)

    qs = heads(q @ weights[0].T + biases[0], tgt) * size**-0.5
    ks, vs = heads(k @ weights[1].T + biases[1], src), heads(v @ weights[2].T + biases[2], src)
    scores = torch.softmax(qs @ ks.transpose(-1, -2) + rand(batch, 1, tgt, src), -1)
    keep = torch.tensor([(int(byte) >> bit) & 1 for byte in bits for bit in range(8)])
    kept = scores * keep[: scores.numel()].reshape(scores.shape) / (1 - p) if p else scores
    context = (kept @ vs).permute(0, 2, 1, 3).reshape(batch * tgt, E)
    return (q, k, v, *weights, *biases, qs, ks, vs, scores, kept, context, rand(batch * tgt, E), bits,
            n, size, src, tgt, p, True)  # fmt: skip


for _p in (0.0, 0.25):
    # The saved scores are what half types would have rounded.
    add("npu_multi_head_attention_backward", multi_head_grads, *_layer(_p), label=f"dropout-{_p}", dtypes=ONE)  # fmt: skip


# ---- npu_sparse_flash_attention
def listed(ids, i, head, block, keys, causal, queries):
    """Keys of a query's blocks; the first -1 ends the list."""
    found = []
    for b in ids[i, head].tolist():
        if b < 0:
            break
        found += range(b * block, min((b + 1) * block, keys))
    return [j for j in found if not causal or j <= keys - queries + i]


def sparse_flash(q, k, v, ids, scale, *, block_table=None, actual_seq_lengths_query=None, actual_seq_lengths_kv=None,
                 query_rope=None, key_rope=None, sparse_block_size=1, layout_query="BSND", layout_kv="BSND", sparse_mode=3,
                 attention_mode=0, return_softmax_lse=False, sinks=None):  # fmt: skip
    if query_rope is not None:
        q, k = torch.cat((q, query_rope), -1), torch.cat((k, key_rope), -1)
    ends, ends_kv = actual_seq_lengths_query, actual_seq_lengths_kv
    parts = zip(
        sequences(q, layout_query, ends),
        sequences(k, layout_kv, ends_kv, block_table),
        sequences(v, layout_kv, ends_kv, block_table),
        sequences(ids, layout_query, ends),
        strict=True,
    )
    found = []
    for qs, ks, vs, chosen in parts:

        def keys(i, head, qs=qs, ks=ks, chosen=chosen):
            return listed(chosen, i, head, sparse_block_size, len(ks), sparse_mode == 3, len(qs))

        found.append(attend_rows(qs, ks, vs, keys, scale, sinks))
    out, top, total = (together(x, q, layout_query, ends) for x in zip(*found, strict=True))
    if not return_softmax_lse:
        return out, *[torch.empty(0, dtype=torch.float64)] * 2
    # (…, N1) with one key head: (B, N2, S1, G) or (N2, T1, G)
    return out, *(x.detach().unsqueeze(-3) for x in (top, total))


SPARSE = "npu_sparse_flash_attention"


def choose(rows, keys, *size):
    """Different keys for each query, in random order, ended by -1."""
    order = torch.stack([torch.randperm(keys, generator=torch.Generator().manual_seed(i)) for i in range(rows)])  # fmt: skip
    ids = order[:, : size[-1]].to(torch.int32)
    ids[:, -1] = -1
    return ids.reshape(size)


_bsnd = (rand(2, 3, 4, 8, low=-1, high=1), rand(2, 6, 1, 8, low=-1, high=1), rand(2, 6, 1, 8))
_ids = choose(6, 6, 2, 3, 1, 5)
_rope = {"query_rope": rand(2, 3, 4, 4, low=-1, high=1), "key_rope": rand(2, 6, 1, 4, low=-1, high=1)}  # fmt: skip
add(SPARSE, sparse_flash, *_bsnd, _ids, 0.4, sparse_mode=0, return_softmax_lse=True, grad=(0, 1, 2))
add(SPARSE, sparse_flash, *_bsnd, _ids, 0.4, sparse_mode=0, label="no-lse", attention_mode=2, **_rope)  # fmt: skip
_all = torch.arange(6, dtype=torch.int32).expand(2, 3, 1, 6).clone()
add(SPARSE, sparse_flash, *_bsnd, _all, 0.4, label="causal", return_softmax_lse=True, grad=(0, 1, 2), **_rope)  # fmt: skip
add(SPARSE, sparse_flash, *_bsnd, _ids, 0.4, sparse_mode=0, label="sinks", sinks=rand(4).float(), return_softmax_lse=True)  # fmt: skip
_pairs = torch.tensor([[[[1, 0, -1]], [[0, -1, 2]], [[2, 1, 0]]]] * 2, dtype=torch.int32)
_short = (torch.tensor([3, 2], dtype=torch.int32), torch.tensor([6, 5], dtype=torch.int32))
add(SPARSE, sparse_flash, *_bsnd, _pairs, 0.4, label="blocks", sparse_block_size=2, sparse_mode=3)
add(SPARSE, sparse_flash, *_bsnd, _pairs, 0.4, label="lengths", sparse_block_size=2, sparse_mode=0,
    actual_seq_lengths_query=_short[0], actual_seq_lengths_kv=_short[1])  # fmt: skip
_none = _ids.clone()
_none[0, 1] = -1
add(SPARSE, sparse_flash, *_bsnd, _none, 0.4, label="row-without-keys", sparse_mode=0)
_packed = (rand(5, 2, 8, low=-1, high=1), rand(9, 1, 8, low=-1, high=1), rand(9, 1, 8))
_ends = {"actual_seq_lengths_query": torch.tensor([3, 5], dtype=torch.int32),
         "actual_seq_lengths_kv": torch.tensor([5, 9], dtype=torch.int32)}  # fmt: skip
_own = torch.tensor([[[0, 2, -1]], [[3, 1, 0]], [[4, 2, 1]], [[0, 1, 2]], [[3, -1, -1]]]).int()
add(SPARSE, sparse_flash, *_packed, _own, 0.4, label="tnd", layout_query="TND", layout_kv="TND", sparse_mode=0,
    return_softmax_lse=True, grad=(0, 1, 2), **_ends)  # fmt: skip
TABLE = torch.tensor([[3, 0, 2], [1, 4, 5]], dtype=torch.int32)
_paged = (rand(2, 3, 2, 8, low=-1, high=1), rand(6, 2, 1, 8, low=-1, high=1), rand(6, 2, 1, 8))
add(SPARSE, sparse_flash, *_paged, _all[..., :5], 0.4, label="paged", layout_kv="PA_BSND", block_table=TABLE,
    actual_seq_lengths_query=_short[0], actual_seq_lengths_kv=_short[1])  # fmt: skip
add(SPARSE, sparse_flash, *(x[:, :, :, :1] for x in _bsnd), _ids, 0.4, label="one-column", sparse_mode=0)  # fmt: skip


def sparse_grads(q, k, v, ids, grad, out, top, total, scale, block, *, query_rope=None, key_rope=None,
                 actual_seq_qlen=None, actual_seq_kvlen=None, layout="BSND", sparse_mode=3):  # fmt: skip
    places = (0, 1, 2) if query_rope is None else (0, 1, 2, 3, 4)

    def forward(q, k, v, q_rope, k_rope):
        return sparse_flash(
            q, k, v, ids, scale, query_rope=q_rope, key_rope=k_rope, sparse_block_size=block,
            layout_query=layout, layout_kv=layout, sparse_mode=sparse_mode,
            actual_seq_lengths_query=actual_seq_qlen, actual_seq_lengths_kv=actual_seq_kvlen,
        )  # fmt: skip

    found = backward_of(forward, places, 0)(grad, (q, k, v, query_rope, key_rope))
    empty = torch.empty(0, dtype=torch.float64)
    return (*found, *[empty] * (5 - len(found)))


def _sparse_case(label, tensors, ids, grad, mode, block=1, ropes=None, **lengths):
    ropes = ropes or {}
    layout = lengths.get("layout", "BSND")
    out, top, total = sparse_flash(
        *tensors, ids, 0.4, sparse_mode=mode, sparse_block_size=block, return_softmax_lse=True,
        layout_query=layout, layout_kv=layout, actual_seq_lengths_query=lengths.get("actual_seq_qlen"),
        actual_seq_lengths_kv=lengths.get("actual_seq_kvlen"), **ropes,
    )  # fmt: skip
    add(f"{SPARSE}_grad", sparse_grads, *tensors, ids, grad, out, top, total, 0.4, block, label=label, sparse_mode=mode,
        keep=(6, 7), **ropes, **lengths)  # fmt: skip


_sparse_case("", _bsnd, _ids, rand(2, 3, 4, 8), 0)
_sparse_case("rope", _bsnd, _all, rand(2, 3, 4, 8), 3, ropes=_rope)
_sparse_case("blocks", _bsnd, _pairs, rand(2, 3, 4, 8), 0, block=2)
_sparse_case(
    "tnd", _packed, _own, rand(5, 2, 8), 0, layout="TND",
    actual_seq_qlen=_ends["actual_seq_lengths_query"], actual_seq_kvlen=_ends["actual_seq_lengths_kv"],
)  # fmt: skip
