# SPDX-License-Identifier: Apache-2.0
"""The lightning indexer: scores of keys for each query, the best keys, and its training loss."""

import torch

from torch_npu.ops import _chosen as chosen
from torch_npu.ops import _lowp as lowp
from torch_npu.ops import _tokens as tokens
from torch_npu.ops import implements
from torch_npu.ops._attend import EMPTY_ROW
from torch_npu.ops._check import floating, require, same_dtype, shapes, wide

_WHOLE = 9223372036854775807


def _index_scores(q, k, w):
    """I (G, S, K) = sum over heads n of w[n] * relu(q[n] . k), from q (G, S, N, D) and k (G, K, D)."""
    groups, size, heads, _ = q.shape
    k = wide(k).transpose(-1, -2)[:, None]
    found = [
        torch.einsum("gsn,gsnk->gsk", w[:, a:b], torch.relu(wide(q[:, a:b]) @ k))
        for a, b in tokens.pieces(size, groups * heads * k.size(-1))
    ]
    return found[0] if len(found) == 1 else torch.cat(found, 1)


def _check_inputs(name, query, key, weights, layout, layout_key) -> None:
    require(query.numel() > 0, f"{name}: Input query should not be empty.", "VALUE")
    tokens.check_layout(name, "query", layout, query, ("BSND", "TND"))
    tokens.check_layout(name, "key", layout_key, key, ("BSND", "TND", "PA_BSND"))
    require(
        key.size(-2) == 1 and key.size(-1) == query.size(-1),
        f"{name}: key has shape {list(key.shape)}; allowed: 1 head of size {query.size(-1)}, as query's.",
    )
    shapes(name, weights=(weights, query.shape[:-1]))
    floating(name, weights=weights)


def _best(
    name, query, key, weights, key_scale, qlens, kvlens, table, layout, layout_key, count, mode
):  # fmt: skip
    """(places of the best keys, -1 where there are none, their scores); both (…, 1, count)."""
    require(
        count > 0,
        f"{name}: sparse_count should be greater than 0, but got {count}",
        "VALUE",
    )
    queries = tokens.tokens_of(name, query, layout, qlens, "actual_seq_lengths_query")
    keys = tokens.Keys(name, key, layout_key, kvlens, "actual_seq_lengths_key", table)
    tokens.check_batches(name, queries, keys)
    where, there, found = keys.dense(key, *(() if key_scale is None else (key_scale,)))
    q, w, k = query, weights, found[0].squeeze(-2)
    if layout == "TND":
        q, w = q[None], w[None]
    sequence, place, there = (x[:, None] for x in (where.sequence, where.place, there))  # (G, 1, K)
    if q.size(0) != k.size(0):
        # One of both is packed: one group of all rows.
        q, w = (x.flatten(0, 1)[None] for x in (q, w))
        k, sequence, place, there = (
            k.flatten(0, 1)[None], *(x.flatten()[None, None] for x in (sequence, place, there))
        )  # fmt: skip
        found = [x.flatten(0, 1)[None] for x in found]
    shape = (q.size(0), q.size(1), 1)
    last = tokens.last_key(queries, keys, mode).reshape(shape)
    keep = there & (sequence == queries.sequence.reshape(shape)) & (place <= last)
    keep = keep & queries.live.reshape(shape)
    scores = _index_scores(q, k, wide(w))
    if key_scale is not None:
        scores = scores * wide(found[1]).squeeze(-1)[:, None]
    scores = scores.masked_fill(~keep, float("-inf"))
    best, order = scores.sort(stable=True, dim=-1, descending=True)
    best, order = best[..., :count], order[..., :count]
    chosen_place = torch.gather(place.expand_as(scores), -1, order)
    chosen_place = torch.where(best.isneginf(), -1, chosen_place).to(torch.int32)
    missing = count - chosen_place.size(-1)
    if missing > 0:
        chosen_place = torch.nn.functional.pad(chosen_place, (0, missing), value=-1)
        best = torch.nn.functional.pad(best, (0, missing), value=float("-inf"))
    shape = (*query.shape[:-2], 1, count)
    return chosen_place.view(shape), best.view(shape)


@implements("npu_lightning_indexer")
def npu_lightning_indexer(
    query, key, weights, *, actual_seq_lengths_query=None, actual_seq_lengths_key=None,
    block_table=None, layout_query="BSND", layout_key="BSND", sparse_count=2048, sparse_mode=3,
    pre_tokens=_WHOLE, next_tokens=_WHOLE, return_value=False,
):  # fmt: skip
    name = "npu_lightning_indexer"
    _check_inputs(name, query, key, weights, layout_query, layout_key)
    same_dtype(name, query=query, key=key)
    tokens.check_mode(name, sparse_mode, pre_tokens, next_tokens)
    place, best = _best(
        name, query, key, weights, None, actual_seq_lengths_query, actual_seq_lengths_key, block_table,
        layout_query, layout_key, sparse_count, sparse_mode,
    )  # fmt: skip
    return place, best.to(query.dtype) if return_value else query.new_empty(0)


@implements("npu_quant_lightning_indexer")
def npu_quant_lightning_indexer(
    query, key, weights, query_dequant_scale, key_dequant_scale, query_quant_mode, key_quant_mode, *,
    actual_seq_lengths_query=None, actual_seq_lengths_key=None, block_table=None,
    layout_query="BSND", layout_key="BSND", sparse_count=2048, sparse_mode=3, pre_tokens=_WHOLE,
    next_tokens=_WHOLE, query_dtype=None, key_dtype=None,
):  # fmt: skip
    name = "npu_quant_lightning_indexer"
    for what, mode in (("query", query_quant_mode), ("key", key_quant_mode)):
        require(
            mode == 0,
            f"{name}: No support of {what}: {what}_quant_mode is {mode}; allowed: 0.",
            "VALUE",
        )
    _check_inputs(name, query, key, weights, layout_query, layout_key)
    tokens.check_mode(name, sparse_mode, pre_tokens, next_tokens)
    shapes(
        name, query_dequant_scale=(query_dequant_scale, query.shape[:-1]),
        key_dequant_scale=(key_dequant_scale, key.shape[:-1]),
    )  # fmt: skip
    require(
        query.dtype == key.dtype,
        f"{name}: query is {query.dtype} and key {key.dtype}; they must have one dtype.",
        "TYPE",
    )
    q, k = (
        x.float() if x.dtype == torch.int8
        else lowp.decode(x, lowp.kind_of_tensor(x, number, name, what, (*lowp.FP8, lowp.HIF8)))
        for what, x, number in (("query", query, query_dtype), ("key", key, key_dtype))
    )  # fmt: skip
    return _best(
        name, q, k, wide(weights) * wide(query_dequant_scale), key_dequant_scale,
        actual_seq_lengths_query, actual_seq_lengths_key, block_table, layout_query, layout_key,
        sparse_count, sparse_mode,
    )[0]  # fmt: skip


class _Selected:
    """The rows of the keys that sparse_indices name, by query; all tensors packed."""

    def __init__(self, name, query, key, indices, layout, qlens, kvlens, mode):
        queries = tokens.tokens_of(name, query, layout, qlens, "actual_seq_qlen")
        keys = tokens.Keys(name, key, layout, kvlens, "actual_seq_klen")
        tokens.check_batches(name, queries, keys)
        require(
            indices.dim() == query.dim() and indices.shape[:-1] == (*query.shape[:-2], 1),
            f"{name}: sparse_indices has shape {list(indices.shape)}; allowed: "
            f"{[*query.shape[:-2], 1]} and the number of keys.",
        )
        place = indices.reshape(-1, indices.size(-1)).to(torch.int64)  # (T, K)
        rows, there = keys.find(queries.sequence.flatten()[:, None], place)
        last = tokens.last_key(queries, keys, mode).flatten()
        self.rows = rows[:, None]  # (T, 1, K)
        self.keep = there & (place <= last[:, None]) & queries.live.flatten()[:, None]
        self.layout = layout

    def flat(self, x):
        return x if self.layout == "TND" else x.flatten(0, 1)

    def take(self, x):
        """(T, K, D) of keys with one head."""
        return wide(chosen.take(self.flat(x), self.rows)).squeeze(1)

    def put_back(self, grad, like):
        back = chosen.put_back(grad[:, None], self.rows, self.keep[:, None], self.flat(like))
        return back.view(like.shape).to(like.dtype)


def _index_grads(q, k, w, d_scores):
    """(dq, dk, dw) of I (…, K), from q (…, N, D), k (…, K, D) and w (…, N), all wide."""
    s = q @ k.transpose(-1, -2)
    dw = (torch.relu(s) @ d_scores[..., None]).squeeze(-1)
    ds = torch.where(s > 0, d_scores[..., None, :] * w[..., None], s.new_zeros(()))
    return ds, dw


@implements("npu_lightning_indexer_grad")
def npu_lightning_indexer_grad(
    query, key, dy, sparse_indices, weights, actual_seq_lengths_query=None,
    actual_seq_lengths_key=None, layout="BSND", sparse_mode=3, pre_tokens=_WHOLE,
    next_tokens=_WHOLE,
):  # fmt: skip
    name = "npu_lightning_indexer_grad"
    _check_inputs(name, query, key, weights, layout, layout)
    tokens.check_mode(name, sparse_mode, pre_tokens, next_tokens)
    call = _Selected(
        name, query, key, sparse_indices, layout, actual_seq_lengths_query, actual_seq_lengths_key,
        sparse_mode,
    )  # fmt: skip
    shapes(name, dy=(dy, sparse_indices.shape))
    q, w, k = wide(call.flat(query)), wide(call.flat(weights)), call.take(key)
    grad = wide(dy).reshape(call.keep.shape).masked_fill(~call.keep, 0)
    ds, dw = _index_grads(q, k, w, grad)
    dk = call.put_back(ds.transpose(-1, -2) @ q, key)
    return (
        (ds @ k).view(query.shape).to(query.dtype), dk, dw.view(weights.shape).to(weights.dtype)
    )  # fmt: skip


# ---- losses -------------------------------------------------------------------------------


def _sequences(name, layout, lengths, argument: str, *tensors):
    """Per sequence, its rows of each tensor; lengths are lists, cumulative in TND."""
    x = tensors[0]
    if layout == "TND":
        ends = [x.size(0)] if lengths is None else list(lengths)
    else:
        ends = [x.size(1)] * x.size(0) if lengths is None else list(lengths)
    limit = x.size(0) if layout == "TND" else x.size(1)
    starts = [0, *ends[:-1]] if layout == "TND" else [0] * len(ends)
    fits = all(0 <= a <= b <= limit for a, b in zip(starts, ends))
    require(
        fits and (layout == "TND" or len(ends) == x.size(0)),
        f"{name}: {argument} is {ends}, which does not fit {layout} {list(x.shape)}; give "
        + ("cumulative ends." if layout == "TND" else "one length per batch."),
    )
    if layout == "TND":
        return [[t[a:b] for t in tensors] for a, b in zip(starts, ends)]
    return [[t[i, :n] for t in tensors] for i, n in enumerate(ends)]


def _join(layout, parts, like):
    """The rows of the sequences in their old places; rows outside of all sequences are 0."""
    if layout == "TND":
        whole = torch.cat(parts) if parts else like[:0]
        return _filled(whole, like.size(0)).to(like.dtype)
    return torch.stack([_filled(part, like.size(1)) for part in parts]).to(like.dtype)


def _filled(x, rows: int):
    missing = rows - x.size(0)
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x


def _hidden(queries: int, keys: int, mode: int, device):
    """True where a key is not seen: past the diagonal that is aligned right."""
    if mode == 0:
        return torch.zeros(queries, keys, dtype=torch.bool, device=device)
    rows = torch.arange(queries, device=device)[:, None]
    return torch.arange(keys, device=device) > keys - queries + rows


def _check_losses(name, layout, mode, pre_tokens, next_tokens, query_index, key_index, weights):
    _check_inputs(name, query_index, key_index, weights, layout, layout)
    same_dtype(name, query_index=query_index, key_index=key_index)
    tokens.check_mode(name, mode, pre_tokens, next_tokens)


@implements("npu_dense_lightning_indexer_softmax_lse")
def npu_dense_lightning_indexer_softmax_lse(
    query_index, key_index, weights, *, actual_seq_qlen=None, actual_seq_klen=None, layout="BSND",
    sparse_mode=3, pre_tokens=_WHOLE, next_tokens=_WHOLE,
):  # fmt: skip
    name = "npu_dense_lightning_indexer_softmax_lse"
    _check_losses(
        name, layout, sparse_mode, pre_tokens, next_tokens, query_index, key_index, weights
    )
    queries = _sequences(name, layout, actual_seq_qlen, "actual_seq_qlen", query_index, weights)
    keys = _sequences(name, layout, actual_seq_klen, "actual_seq_klen", key_index)
    _check_as_many(name, queries, keys)
    found = []
    for (q, w), (k,) in zip(queries, keys, strict=True):
        scores = _index_scores(q[None], k.transpose(0, 1), wide(w)[None])[0]
        hidden = _hidden(*scores.shape, sparse_mode, q.device)
        scores = scores.masked_fill(hidden, float("-inf"))
        m = scores.new_full((q.size(0),), EMPTY_ROW)
        m = torch.maximum(scores.amax(-1), m) if k.size(0) else m
        found.append(torch.stack((m, torch.exp(scores - m[:, None]).sum(-1)), -1))
    like = query_index.new_zeros(*query_index.shape[:-2], 2, dtype=found[0].dtype)
    m, total = _join(layout, found, like).unbind(-1)
    return (m[None], total[None]) if layout == "TND" else (m[:, None], total[:, None])


def _check_as_many(name, queries, keys) -> None:
    require(
        len(queries) == len(keys),
        f"{name}: actual_seq_qlen has {len(queries)} sequences and actual_seq_klen {len(keys)}; they "
        "must have as many.",
    )


def _check_main(name, query, key, query_rope, key_rope, query_index) -> None:
    same_dtype(name, query=query, key=key)
    require(
        query.dim() == query_index.dim() == key.dim()
        and query.shape[:-2] == query_index.shape[:-2]
        and key.size(-2) > 0 and query.size(-2) % key.size(-2) == 0
        and key.size(-1) == query.size(-1),
        f"{name}: query has shape {list(query.shape)}, key {list(key.shape)} and query_index "
        f"{list(query_index.shape)}; query and query_index must have as many tokens, and key heads of "
        "query's size whose number divides query's.",
    )  # fmt: skip
    require(
        (query_rope is None) == (key_rope is None),
        f"{name}: query_rope is {'None' if query_rope is None else 'given'} and key_rope "
        f"{'None' if key_rope is None else 'given'}; give both or none.",
    )


def _by_token(name, layout, what: str, x, heads: int, kv_heads: int, like):
    """Statistics (B, N2, S, G) or (N2, T, G) as (…, N), query head last."""
    shape = list(like.shape[:-2])
    shape = [*shape[:-1], kv_heads, shape[-1], heads // kv_heads]
    require(
        list(x.shape) == shape,
        f"{name}: {what} has shape {list(x.shape)}; allowed: {shape}.",
    )
    return wide(x).transpose(-2, -3).flatten(-2)


def _divergence(p, y):
    """Sum of p (log p - log y), both cut at 1e-8 inside the logarithms."""
    return (p * (torch.log(p.clamp(min=1e-8)) - torch.log(y.clamp(min=1e-8)))).sum()


@implements("npu_dense_lightning_indexer_grad_kl_loss")
def npu_dense_lightning_indexer_grad_kl_loss(
    query, key, query_index, key_index, weights, softmax_max, softmax_sum, softmax_max_index,
    softmax_sum_index, scale_value, *, query_rope=None, key_rope=None, actual_seq_qlen=None,
    actual_seq_klen=None, layout="BSND", sparse_mode=3, pre_tokens=_WHOLE, next_tokens=_WHOLE,
):  # fmt: skip
    name = "npu_dense_lightning_indexer_grad_kl_loss"
    _check_losses(
        name, layout, sparse_mode, pre_tokens, next_tokens, query_index, key_index, weights
    )
    _check_main(name, query, key, query_rope, key_rope, query_index)
    heads, kv_heads = query.size(-2), key.size(-2)
    statistics = [
        _by_token(name, layout, what, x, n, k, query)
        for what, x, n, k in (
            ("softmax_max", softmax_max, heads, kv_heads), ("softmax_sum", softmax_sum, heads, kv_heads)
        )
    ]  # fmt: skip
    shape = [*query.shape[:-3], 1, query.size(-3)]
    for what, x in (
        ("softmax_max_index", softmax_max_index),
        ("softmax_sum_index", softmax_sum_index),
    ):
        require(
            list(x.shape) == shape,
            f"{name}: {what} has shape {list(x.shape)}; allowed: {shape}.",
        )
        statistics.append(wide(x).squeeze(-2))
    if query_rope is not None:
        query, key = torch.cat((query, query_rope), -1), torch.cat((key, key_rope), -1)
    queries = _sequences(
        name, layout, actual_seq_qlen, "actual_seq_qlen", query, query_index, weights, *statistics
    )
    keys = _sequences(name, layout, actual_seq_klen, "actual_seq_klen", key, key_index)
    _check_as_many(name, queries, keys)
    found, loss = [], 0
    for (q, qi, w, m, total, mi, ti), (k, ki) in zip(queries, keys, strict=True):
        qi, ki, w = wide(qi), wide(ki).transpose(0, 1), wide(w)
        hidden = _hidden(q.size(0), k.size(0), sparse_mode, q.device)
        each = wide(k).repeat_interleave(heads // kv_heads, 1)
        s = torch.einsum("qnd,knd->nqk", wide(q), each) * scale_value
        total, ti = (torch.where(x == 0, 1, x) for x in (total, ti))
        p = torch.exp(s - m.t()[..., None]) / total.t()[..., None]
        p = p.mean(0).masked_fill(hidden, 0)
        index = _index_scores(qi[None], ki, w[None])[0]
        y = (torch.exp(index - mi[:, None]) / ti[:, None]).masked_fill(hidden, 0)
        loss = loss + _divergence(p, y)
        ds, dw = _index_grads(qi, ki, w, y - p)
        ds = wide(ds.to(query_index.dtype))
        found.append((ds @ ki, torch.einsum("qnk,qnd->kd", ds, qi)[:, None], dw))
    dq, dk, dw = (
        _join(layout, list(parts), like)
        for parts, like in zip(
            zip(*found, strict=True), (query_index, key_index, weights), strict=True
        )
    )
    return dq, dk, dw, loss.reshape(1)


@implements("npu_sparse_lightning_indexer_grad_kl_loss")
def npu_sparse_lightning_indexer_grad_kl_loss(
    query, key, query_index, key_index, weights, sparse_indices, softmax_max, softmax_sum,
    scale_value, *, query_rope=None, key_rope=None, actual_seq_qlen=None, actual_seq_klen=None,
    layout="BSND", sparse_mode=3, pre_tokens=_WHOLE, next_tokens=_WHOLE, sinks=None,
):  # fmt: skip
    name = "npu_sparse_lightning_indexer_grad_kl_loss"
    _check_losses(
        name, layout, sparse_mode, pre_tokens, next_tokens, query_index, key_index, weights
    )
    _check_main(name, query, key, query_rope, key_rope, query_index)
    require(
        key.size(-2) == 1,
        f"{name}: key has {key.size(-2)} heads; allowed: 1.",
    )
    call = _Selected(
        name, query_index, key_index, sparse_indices, layout, actual_seq_qlen, actual_seq_klen,
        sparse_mode,
    )  # fmt: skip
    m, total = (
        call.flat(_by_token(name, layout, what, x, query.size(-2), 1, query))
        for what, x in (("softmax_max", softmax_max), ("softmax_sum", softmax_sum))
    )
    total = torch.where(total == 0, 1, total)
    hidden = ~call.keep
    q, k = wide(call.flat(query)), call.take(key)
    s = q @ k.transpose(-1, -2)
    if query_rope is not None:
        s = s + wide(call.flat(query_rope)) @ call.take(key_rope).transpose(-1, -2)
    p = (
        (torch.exp(s * scale_value - m[..., None]) / total[..., None])
        .mean(1)
        .masked_fill(hidden, 0)
    )
    if sinks is not None:
        whole = p.sum(-1, keepdim=True)
        p = p / torch.where(whole == 0, 1, whole)
    qi, w, ki = wide(call.flat(query_index)), wide(call.flat(weights)), call.take(key_index)
    index = _index_scores(qi[:, None], ki, w[:, None])[:, 0]
    # A query without keys has scores that are all -inf: its softmax is taken as 0.
    y = torch.softmax(index.masked_fill(hidden, EMPTY_ROW), -1).masked_fill(hidden, 0)
    ds, dw = _index_grads(qi, ki, w, y - p)
    ds = wide(ds.to(query_index.dtype))
    dk = call.put_back(torch.einsum("tnk,tnd->tkd", ds, qi), key_index)
    return (
        (ds @ ki).view(query_index.shape).to(query_index.dtype), dk,
        dw.view(weights.shape).to(weights.dtype), _divergence(p, y).reshape(1),
    )  # fmt: skip
