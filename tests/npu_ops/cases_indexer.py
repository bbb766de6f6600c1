# SPDX-License-Identifier: Apache-2.0
"""The lightning indexer: which keys a query reads, and how it learns that from the main attention."""

import torch
from cases_sparse import TABLE, sequences, together
from table import add, ints, rand

ONE = (torch.float32,)


def index_scores(q, k, w):
    """(S, Lk): the sum over heads of w · relu(q · k); one key head."""
    return sum(w[:, n, None] * torch.relu(q[:, n] @ k[:, 0].T) for n in range(q.shape[1]))


def visible(i, queries, keys, mode):
    return range(min(keys, keys - queries + i + 1) if mode == 3 else keys)


def ranked(scores, keys, count):
    """Descending, the lower index first among equals."""
    return sorted(keys, key=lambda s: (-float(scores[s]), s))[:count]


# Sums of a few products of multiples of 1/32 are exact in float32: the order is the same in all dtypes.
def indexer(q, k, w, *, actual_seq_lengths_query=None, actual_seq_lengths_key=None, block_table=None, layout_query="BSND",
            layout_key="BSND", sparse_count=2048, sparse_mode=3, return_value=False):  # fmt: skip
    ids, values = [], []
    for qs, ks, ws in zip(
        sequences(q, layout_query, actual_seq_lengths_query),
        sequences(k, layout_key, actual_seq_lengths_key, block_table),
        sequences(w, layout_query, actual_seq_lengths_query),
        strict=True,
    ):
        scores = index_scores(qs, ks, ws)
        chosen = torch.full((len(qs), 1, sparse_count), -1, dtype=torch.int32)
        best = []
        for i in range(len(qs)):
            order = ranked(scores[i], visible(i, len(qs), len(ks), sparse_mode), sparse_count)
            chosen[i, 0, : len(order)] = torch.tensor(order, dtype=torch.int32)
            pad = torch.full((sparse_count - len(order),), -torch.inf, dtype=torch.float64)
            best.append(torch.cat((scores[i][order], pad))[None])
        ids.append(chosen)
        values.append(torch.stack(best))
    if layout_query == "TND" or actual_seq_lengths_query is None:
        found = [together(x, q, layout_query, actual_seq_lengths_query) for x in (ids, values)]
    else:  # rows past the length have no keys
        found = []
        for parts, nothing in ((ids, -1), (values, -torch.inf)):
            rows = [
                torch.cat((p, p.new_full((q.shape[1] - len(p), *p.shape[1:]), nothing)))
                for p in parts
            ]
            found.append(torch.stack(rows))
    return found[0], found[1] if return_value else torch.empty(0, dtype=torch.float64)


INDEXER = "npu_lightning_indexer"
_bsnd = (rand(2, 3, 4, 8, low=-1, high=1), rand(2, 6, 1, 8, low=-1, high=1), rand(2, 3, 4))
_int = {"dtype": torch.int32}
for _mode in (0, 3):
    add(INDEXER, indexer, *_bsnd, sparse_count=4, sparse_mode=_mode, label=f"mode-{_mode}")
# As many as there are: the rest is padding.
add(INDEXER, indexer, *_bsnd, sparse_count=8, label="more-than-keys", return_value=True)
_lens = {"actual_seq_lengths_query": torch.tensor([3, 2], **_int), "actual_seq_lengths_key": torch.tensor([6, 4], **_int)}  # fmt: skip
add(INDEXER, indexer, *_bsnd, sparse_count=3, label="lengths", **_lens)
_packed = (rand(5, 2, 8, low=-1, high=1), rand(9, 1, 8, low=-1, high=1), rand(5, 2))
_ends = {"actual_seq_lengths_query": torch.tensor([3, 5], **_int), "actual_seq_lengths_key": torch.tensor([5, 9], **_int)}  # fmt: skip
add(INDEXER, indexer, *_packed, sparse_count=3, layout_query="TND", layout_key="TND", label="tnd", return_value=True, **_ends)  # fmt: skip
_pages = rand(6, 2, 1, 8, low=-1, high=1)
add(INDEXER, indexer, _bsnd[0], _pages, _bsnd[2], sparse_count=3, layout_key="PA_BSND", block_table=TABLE, label="paged",
    **_lens)  # fmt: skip
add(INDEXER, indexer, rand(1, 1, 1, 4), rand(1, 1, 1, 4), rand(1, 1, 1), sparse_count=1, label="one", return_value=True)  # fmt: skip
_equal = rand(1, 1, 1, 8).expand(1, 6, 1, 8)
add(INDEXER, indexer, rand(1, 2, 3, 8), _equal, rand(1, 2, 3), sparse_count=4, label="ties")


def through_values(q, k, w, **rest):
    """The values alone: the gradient goes through them."""
    ids, values = indexer(q, k, w, return_value=True, **rest)
    return ids, torch.where(torch.isinf(values), values.detach(), values)


add(INDEXER, lambda q, k, w, return_value, **r: through_values(q, k, w, **r), *_bsnd, return_value=True, sparse_count=4,
    sparse_mode=0, label="values", grad=(0, 1, 2))  # fmt: skip


def indexer_grads(q, k, dy, ids, w, *, actual_seq_lengths_query=None, actual_seq_lengths_key=None, layout="BSND", **rest):  # fmt: skip
    leaves = [x.clone().requires_grad_() for x in (q, k, w)]
    total = 0
    for qs, ks, ws, chosen, seeds in zip(
        sequences(leaves[0], layout, actual_seq_lengths_query),
        sequences(leaves[1], layout, actual_seq_lengths_key),
        sequences(leaves[2], layout, actual_seq_lengths_query),
        sequences(ids, layout, actual_seq_lengths_query),
        sequences(dy, layout, actual_seq_lengths_query),
        strict=True,
    ):
        scores = index_scores(qs, ks, ws)
        for i in range(len(qs)):
            for at, s in enumerate(chosen[i, 0].tolist()):
                if s >= 0:
                    total = total + scores[i, s] * seeds[i, 0, at]
    return torch.autograd.grad(total, leaves)


_ids = torch.tensor([[[[0, 2, -1]], [[3, 1, 0]], [[5, 4, -1]]]] * 2, **_int)
add(f"{INDEXER}_grad", indexer_grads, *_bsnd[:2], rand(2, 3, 1, 3), _ids, _bsnd[2], sparse_mode=0)
_own = torch.tensor([[[0, 2, -1]], [[3, 1, 0]], [[4, 2, 1]], [[0, 1, 2]], [[-1, -1, -1]]], **_int)
add(f"{INDEXER}_grad", indexer_grads, *_packed[:2], rand(5, 1, 3), _own, _packed[2], layout="TND", sparse_mode=0, label="tnd",
    **_ends)  # fmt: skip


# ---- npu_quant_lightning_indexer
def quant_indexer(q, k, w, sq, sk, query_mode, key_mode, *, query_dtype=None, key_dtype=None, **rest):  # fmt: skip
    ids, _ = indexer(q.double(), k.double() * sk.double()[..., None], w * sq.double(), **rest)
    return ids


QUANT = "npu_quant_lightning_indexer"
_signed = (
    ints(-100, 100, 2, 3, 4, 8, dtype=torch.int8),
    ints(-100, 100, 2, 6, 1, 8, dtype=torch.int8),
)
# Scales differ by powers of two, so that scores stay apart.
_sq, _sk = 2.0 ** ints(-9, -6, 2, 3, 4).float(), 2.0 ** ints(-9, -6, 2, 6, 1).float()
for _mode in (0, 3):
    add(QUANT, quant_indexer, *_signed, _bsnd[2], _sq, _sk, 0, 0, sparse_count=4, sparse_mode=_mode, label=f"mode-{_mode}",
        dtypes=ONE)  # fmt: skip
add(QUANT, quant_indexer, _signed[0], ints(-100, 100, 6, 2, 1, 8, dtype=torch.int8), _bsnd[2], _sq, _sk.reshape(6, 2, 1), 0, 0,
    sparse_count=3, layout_key="PA_BSND", block_table=TABLE, label="paged", dtypes=ONE, **_lens)  # fmt: skip
_fp8 = [(rand(*s, low=-2, high=2)).to(torch.float8_e4m3fn) for s in ((2, 3, 4, 8), (2, 6, 1, 8))]
add(QUANT, quant_indexer, *_fp8, _bsnd[2], _sq, _sk, 0, 0, sparse_count=4, label="fp8", dtypes=ONE)


# ---- losses
def kept_scores(scores, mode):
    queries, keys = scores.shape
    hidden = [[j not in visible(i, queries, keys, mode) for j in range(keys)] for i in range(queries)]  # fmt: skip
    return scores.masked_fill(torch.tensor(hidden), -torch.inf)


def dense_lse(q, k, w, *, actual_seq_qlen=None, actual_seq_klen=None, layout="BSND", sparse_mode=3):
    tops, totals = [], []
    for qs, ks, ws in zip(
        sequences(q, layout, actual_seq_qlen),
        sequences(k, layout, actual_seq_klen),
        sequences(w, layout, actual_seq_qlen),
        strict=True,
    ):
        scores = kept_scores(index_scores(qs, ks, ws), sparse_mode)
        tops.append(scores.amax(-1))
        totals.append(torch.exp(scores - scores.amax(-1, keepdim=True)).sum(-1))
    if layout == "TND":
        return torch.cat(tops)[None], torch.cat(totals)[None]
    return torch.stack(tops)[:, None], torch.stack(totals)[:, None]


LSE = "npu_dense_lightning_indexer_softmax_lse"
add(LSE, dense_lse, *_bsnd)
add(LSE, dense_lse, *_bsnd, sparse_mode=0, label="all")
_lists = {"actual_seq_qlen": [3, 5], "actual_seq_klen": [5, 9]}
add(LSE, dense_lse, *_packed, layout="TND", label="tnd", **_lists)


def main_rows(q, k, q_rope, k_rope, scale, mode):
    """Scores (S, N1, Lk) of the main attention."""
    if q_rope is not None:
        q, k = torch.cat((q, q_rope), -1), torch.cat((k, k_rope), -1)
    group = q.shape[1] // k.shape[1]
    rows = [kept_scores(q[:, n] @ k[:, n // group].T * scale, mode) for n in range(q.shape[1])]
    return torch.stack(rows, 1)


def statistics(
    q,
    k,
    q_rope,
    k_rope,
    scale,
    mode,
    layout="BSND",
    ends=None,
    ends_k=None,
    chosen=None,
    sinks=None,
):
    """(maximum, sum) as the main attention gives them: (B, N2, S1, G) or (N2, T1, G)."""
    found = []
    for b, (qs, ks) in enumerate(
        zip(sequences(q, layout, ends), sequences(k, layout, ends_k), strict=True)
    ):
        ropes = [
            None if r is None else sequences(r, layout, e)[b] for r, e in ((q_rope, ends), (k_rope, ends_k))
        ]  # fmt: skip
        rows = main_rows(qs, ks, *ropes, scale, mode)
        if chosen is not None:
            ids = sequences(chosen, layout, ends)[b]
            out = torch.ones(len(qs), len(ks), dtype=torch.bool)
            for i in range(len(qs)):
                out[i, [j for j in ids[i, 0].tolist() if j >= 0]] = False
            rows = rows.masked_fill(out[:, None], -torch.inf)
        every = rows
        if sinks is not None:
            every = torch.cat((rows, sinks.double()[None, :, None].expand(len(qs), -1, 1)), -1)
        top = every.amax(-1)
        total = torch.exp(every - top[..., None]).sum(-1)
        heads = k.shape[-2]
        found.append([x.reshape(len(qs), heads, -1).transpose(0, 1) for x in (top, total)])
    if layout == "TND":
        return [torch.cat([f[i] for f in found], 1) for i in (0, 1)]
    return [torch.stack([f[i] for f in found]) for i in (0, 1)]


def kl_loss(q, k, qi, ki, wi, top, total, scale, *, chosen=None, top_index=None, total_index=None, query_rope=None, key_rope=None,
            actual_seq_qlen=None, actual_seq_klen=None, layout="BSND", sparse_mode=3, divide=False):  # fmt: skip
    leaves = [x.clone().requires_grad_() for x in (qi, ki, wi)]
    heads, group, start = q.shape[-2], q.shape[-2] // k.shape[-2], 0
    loss, target, given = 0.0, [], []
    for b, (qs, ks, qis, kis, wis) in enumerate(
        zip(
            sequences(q, layout, actual_seq_qlen),
            sequences(k, layout, actual_seq_klen),
            sequences(leaves[0], layout, actual_seq_qlen),
            sequences(leaves[1], layout, actual_seq_klen),
            sequences(leaves[2], layout, actual_seq_qlen),
            strict=True,
        )
    ):
        ropes = [
            None if r is None else sequences(r, layout, e)[b]
            for r, e in ((query_rope, actual_seq_qlen), (key_rope, actual_seq_klen))
        ]
        rows = main_rows(qs, ks, *ropes, scale, sparse_mode)
        part = slice(start, start + len(qs))
        start += len(qs)
        scores = index_scores(qis, kis, wis)
        ids = None if chosen is None else sequences(chosen, layout, actual_seq_qlen)[b]
        for i in range(len(qs)):
            keys = list(visible(i, len(qs), len(ks), sparse_mode))
            if ids is not None:
                keys = [j for j in ids[i, 0].tolist() if j >= 0 and j in keys]
            if not keys:
                continue
            p = 0
            for n in range(heads):
                place = (n // group, part.start + i, n % group)
                m, s = (x[place] if layout == "TND" else x[b, n // group, i, n % group] for x in (top, total))  # fmt: skip
                p = p + torch.exp(rows[i, n, keys] - m) / s / heads
            p = p / p.sum() if divide else p
            row = scores[i, keys]
            if top_index is None:
                y = torch.softmax(row.detach(), 0)
            else:
                m, s = (x[0, part.start + i] if layout == "TND" else x[b, 0, i] for x in (top_index, total_index))  # fmt: skip
                y = torch.exp(row.detach() - m) / s
            loss = loss + (p * (torch.log(p.clamp(min=1e-8)) - torch.log(y.clamp(min=1e-8)))).sum()
            target.append(row)
            given.append(y - p)
    grads = torch.autograd.grad(target, leaves, given)
    return (*grads, loss.reshape(1))


def dense_kl(q, k, qi, ki, wi, top, total, top_index, total_index, scale, **rest):
    return kl_loss(q, k, qi, ki, wi, top, total, scale, top_index=top_index, total_index=total_index, **rest)  # fmt: skip


def sparse_kl(q, k, qi, ki, wi, ids, top, total, scale, *, sinks=None, **rest):
    return kl_loss(
        q, k, qi, ki, wi, top, total, scale, chosen=ids, divide=sinks is not None, **rest
    )


DENSE = "npu_dense_lightning_indexer_grad_kl_loss"
_main = (rand(2, 3, 2, 8, low=-1, high=1), rand(2, 6, 2, 8, low=-1, high=1))
_ropes = {"query_rope": rand(2, 3, 2, 4, low=-1, high=1), "key_rope": rand(2, 6, 2, 4, low=-1, high=1)}  # fmt: skip
for _label, _rest, _mode in (("", {}, 3), ("rope", _ropes, 3), ("all", {}, 0)):
    _stats = statistics(*_main, _rest.get("query_rope"), _rest.get("key_rope"), 0.5, _mode)
    _index = dense_lse(*_bsnd, sparse_mode=_mode)
    add(DENSE, dense_kl, *_main, *_bsnd, *_stats, *_index, 0.5, keep=(5, 6, 7, 8), label=_label, sparse_mode=_mode,
        **_rest)  # fmt: skip
_main_tnd = (rand(5, 2, 8, low=-1, high=1), rand(9, 2, 8, low=-1, high=1))
_stats = statistics(*_main_tnd, None, None, 0.5, 3, "TND", [3, 5], [5, 9])
_index = dense_lse(*_packed, layout="TND", **_lists)
add(DENSE, dense_kl, *_main_tnd, *_packed, *_stats, *_index, 0.5, keep=(5, 6, 7, 8), label="tnd", layout="TND", **_lists)  # fmt: skip

KL = "npu_sparse_lightning_indexer_grad_kl_loss"
_one_head = (rand(2, 3, 4, 8, low=-1, high=1), rand(2, 6, 1, 8, low=-1, high=1))
_ids[1, 1] = -1
for _label, _sinks in (("", None), ("sinks", rand(4).float())):
    _stats = statistics(*_one_head, None, None, 0.5, 0, chosen=_ids, sinks=_sinks)
    _stats[0][torch.isinf(_stats[0])] = 0  # the row without keys
    add(KL, sparse_kl, *_one_head, *_bsnd, _ids, *_stats, 0.5, keep=(6, 7), sparse_mode=0, label=_label,
        **({} if _sinks is None else {"sinks": _sinks}))  # fmt: skip
_stats = statistics(*_one_head, None, None, 0.5, 3, chosen=_ids)
_stats[0][torch.isinf(_stats[0])] = 0
add(KL, sparse_kl, *_one_head, *_bsnd, _ids, *_stats, 0.5, keep=(6, 7), label="causal")
_tnd = (rand(5, 4, 8, low=-1, high=1), rand(9, 1, 8, low=-1, high=1))
_stats = statistics(*_tnd, None, None, 0.5, 0, "TND", [3, 5], [5, 9], chosen=_own)
_stats[0][torch.isinf(_stats[0])] = 0
add(KL, sparse_kl, *_tnd, *_packed, _own, *_stats, 0.5, keep=(6, 7), sparse_mode=0, label="tnd", layout="TND", **_lists)  # fmt: skip
