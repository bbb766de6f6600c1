# SPDX-License-Identifier: Apache-2.0
"""Native sparse attention: compressed keys, attention over them, and over the blocks it chooses."""

import torch

from torch_npu.ops import _chosen as chosen
from torch_npu.ops import _tokens as tokens
from torch_npu.ops import implements
from torch_npu.ops._attend import lengths_of, softmax_parts
from torch_npu.ops._check import require, same_dtype, shapes, wide
from torch_npu.ops.cache import _put

_DROPPED = -40000.0  # added to the scaled scores that atten_mask drops
_FORCED = 23333.0  # importance of the blocks that topk_mask names


def _eight(x):
    return x[..., None].expand(*x.shape, 8).contiguous()


def _ends(name, given, rows: int, argument: str) -> list[int]:
    ends = [rows] if given is None else [int(n) for n in given]
    lengths = lengths_of(ends, name, argument)
    require(
        sum(lengths) <= rows,
        f"{name}: {argument} is {ends}, but the tensor has {rows} rows.",
    )
    return lengths


def _positive(name, **numbers) -> None:
    for what, number in numbers.items():
        require(number > 0, f"{name}: {what} is {number}; it must be positive.", "VALUE")


# ---- compression --------------------------------------------------------------------------


def _check_compress(name, x, weight, block: int, stride: int) -> None:
    _positive(name, compress_block_size=block, compress_stride=stride)
    same_dtype(name, input=x, weight=weight)
    require(
        x.dim() == 3 and list(weight.shape) == [block, x.size(1)],
        f"{name}: input has shape {list(x.shape)} and weight {list(weight.shape)}; allowed: (tokens, "
        f"heads, size) and [{block}, heads].",
    )


def _windows(x, lengths, block: int, stride: int):
    """Per sequence that has any, its windows (W, N, D, block)."""
    at, found = 0, []
    for length in lengths:
        if length >= block:
            found.append(x[at : at + length].unfold(0, block, stride))
        at += length
    return found


@implements("npu_nsa_compress")
def npu_nsa_compress(input, weight, compress_block_size, compress_stride, *, actual_seq_len=None):
    name = "npu_nsa_compress"
    _check_compress(name, input, weight, compress_block_size, compress_stride)
    lengths = _ends(name, actual_seq_len, input.size(0), "actual_seq_len")
    x, w = wide(input), wide(weight)
    rows = [
        torch.einsum("rndl,ln->rnd", part, w)
        for part in _windows(x, lengths, compress_block_size, compress_stride)
    ]
    return torch.cat(rows).to(input.dtype) if rows else input[:0] * weight[:1, :, None]


@implements("npu_nsa_compress_grad")
def npu_nsa_compress_grad(
    grad, input, weight, compress_block_size, compress_stride, *, actual_seq_len=None
):
    name = "npu_nsa_compress_grad"
    _check_compress(name, input, weight, compress_block_size, compress_stride)
    block, stride = compress_block_size, compress_stride
    lengths = _ends(name, actual_seq_len, input.size(0), "actual_seq_len")
    counts = [(n - block) // stride + 1 if n >= block else 0 for n in lengths]
    shapes(name, grad=(grad, [sum(counts), *input.shape[1:]]))
    x, w, g = wide(input), wide(weight), wide(grad)
    starts, at = [], 0
    for length, count in zip(lengths, counts, strict=True):
        starts += range(at, at + count * stride, stride)
        at += length
    first = torch.tensor(starts, dtype=torch.int64, device=x.device)
    places = first[:, None] + torch.arange(block, device=x.device)
    each = torch.einsum("rnd,ln->rlnd", g, w).flatten(0, 1)
    dx = torch.zeros_like(x).index_add(0, places.flatten(), each)
    dw = torch.zeros_like(w)
    done = 0
    for part in _windows(x, lengths, block, stride):
        dw = dw + torch.einsum("rnd,rndl->ln", g[done : done + part.size(0)], part)
        done += part.size(0)
    return dx.to(input.dtype), dw.to(weight.dtype)


@implements("npu_nsa_compress_infer.cache")
def npu_nsa_compress_infer(
    input, weight, slot_mapping, compress_block_size, compress_stride, page_block_size, *,
    block_table=None, actual_seq_len=None, cache,
):  # fmt: skip
    """Writes the window that a sequence's last token completes; the others are left alone."""
    name = "npu_nsa_compress_infer"
    block, stride = compress_block_size, compress_stride
    _positive(name, compress_block_size=block, compress_stride=stride)
    require(
        input.dim() == 4 and input.size(1) == page_block_size
        and list(weight.shape) == [block, input.size(2)],
        f"{name}: input has shape {list(input.shape)} and weight {list(weight.shape)}; allowed: "
        f"(blocks, {page_block_size}, heads, size) and [{block}, heads].",
    )  # fmt: skip
    same_dtype(name, input=input, weight=weight, cache=cache)
    require(
        actual_seq_len is not None and len(actual_seq_len) == slot_mapping.numel(),
        f"{name}: actual_seq_len is {actual_seq_len}; give one length for each of the "
        f"{slot_mapping.numel()} numbers of slot_mapping.",
    )
    whole = cache if cache.dim() == 4 else cache[None]
    require(
        cache.dim() in (3, 4) and whole.shape[2:] == input.shape[2:],
        f"{name}: cache has shape {list(cache.shape)}; allowed: (blocks, block size, "
        f"{input.size(2)}, {input.size(3)}).",
    )
    keys = tokens.Keys(name, input, "PA_BSND", actual_seq_len, "actual_seq_len", block_table)
    ready = [b for b, n in enumerate(actual_seq_len) if n >= block and (n - block) % stride == 0]
    if not ready:
        return cache
    for b in ready:
        require(
            actual_seq_len[b] <= block_table.size(1) * page_block_size,
            f"{name}: actual_seq_len[{b}] is {actual_seq_len[b]}, but block_table has pages for "
            f"{block_table.size(1) * page_block_size} tokens.",
            "VALUE",
        )
    sequence = torch.tensor(ready, device=input.device)
    place = keys.lengths[sequence][:, None] - block + torch.arange(block, device=input.device)
    row, there = keys.find(sequence[:, None], place)
    found = torch.where(there[..., None, None], wide(keys.rows[row]), 0)
    rows = torch.einsum("blnd,ln->bnd", found, wide(weight)).to(cache.dtype)
    _put(whole, rows, slot_mapping.flatten()[sequence], "Norm", name)
    return cache


# ---- attention over compressed keys -------------------------------------------------------


def _block_count(length: int, block: int, stride: int, select: int) -> int:
    """How many selection blocks the tokens behind `length` compressed ones fill."""
    return -(-((length - 1) * stride + block) // select) if length > 0 else 0


def _shares(rows: int, blocks: int, block: int, stride: int, select: int, like):
    """(rows, blocks): how often a compressed key counts for a selection block."""
    table = like.new_zeros(rows, blocks)
    row = torch.arange(rows, device=like.device)[:, None]
    first = (torch.arange(blocks, device=like.device) + 1) * (select // stride)
    for m in range(select // stride):
        for n in range(block // stride):
            table = table + (row == first - m - n)
    return table


def _check_sizes(name, block: int, stride: int, select: int, count: int) -> None:
    _positive(
        name, compress_block_size=block, compress_stride=stride, select_block_size=select,
        select_block_count=count,
    )  # fmt: skip
    require(
        block % stride == 0 and select % stride == 0,
        f"{name}: compress_block_size is {block} and select_block_size {select}; both must be "
        f"multiples of compress_stride {stride}.",
        "VALUE",
    )


def _check_qkv(name, query, key, value, head_num: int) -> None:
    """Packed query, key and value (T, N, D)."""
    same_dtype(name, query=query, key=key, value=value)
    require(
        query.dim() == key.dim() == value.dim() == 3
        and key.shape[:2] == value.shape[:2] and query.size(2) == key.size(2),
        f"{name}: query has shape {list(query.shape)}, key {list(key.shape)} and value "
        f"{list(value.shape)}; allowed: (tokens, heads, size), key and value of as many tokens and "
        "heads, query and key of one size.",
    )  # fmt: skip
    require(
        query.size(1) == head_num and key.size(1) > 0 and head_num % key.size(1) == 0,
        f"{name}: head_num is {head_num}, query has {query.size(1)} heads and key {key.size(1)}; "
        "head_num must be query's heads, a multiple of key's.",
    )


def _heads_of(q, k, v, scale: float, added):
    """(probabilities (N2, G, Sq, Sk), out (Sq, N1, Dv), m, sum (Sq, N1)), wide."""
    q = wide(q).transpose(0, 1).unflatten(0, (k.size(1), q.size(1) // k.size(1)))
    k, v = (wide(x).transpose(0, 1)[:, None] for x in (k, v))
    scores = q @ k.transpose(-1, -2) * scale
    p, m, total = softmax_parts(scores if added is None else scores + added)
    p = p / torch.where(total == 0, 1, total)
    out, m, total = (x.flatten(0, 1).transpose(0, 1) for x in (p @ v, m, total))
    return p, out, m[..., 0], total[..., 0]


def _best_blocks(importance, count: int):
    """The first `count` blocks by importance, -1 where there are not as many; (..., count) int32."""
    best = importance.sort(stable=True, dim=-1, descending=True).indices[..., :count]
    return torch.nn.functional.pad(best, (0, count - best.size(-1)), value=-1).to(torch.int32)


@implements("npu_nsa_compress_attention")
def npu_nsa_compress_attention(
    query, key, value, scale_value, head_num, compress_block_size, compress_stride, select_block_size,
    select_block_count, *, topk_mask=None, atten_mask=None, actual_seq_qlen=None,
    actual_cmp_seq_kvlen=None, actual_sel_seq_kvlen=None,
):  # fmt: skip
    name = "npu_nsa_compress_attention"
    sizes = compress_block_size, compress_stride, select_block_size
    _check_sizes(name, *sizes, select_block_count)
    _check_qkv(name, query, key, value, head_num)
    qlens = _ends(name, actual_seq_qlen, query.size(0), "actual_seq_qlen")
    kvlens = _ends(name, actual_cmp_seq_kvlen, key.size(0), "actual_cmp_seq_kvlen")
    if actual_sel_seq_kvlen is None:
        blocks = [_block_count(n, *sizes) for n in kvlens]
    else:
        blocks = lengths_of(actual_sel_seq_kvlen, name, "actual_sel_seq_kvlen")
    require(
        len(qlens) == len(kvlens) == len(blocks),
        f"{name}: actual_seq_qlen has {len(qlens)} sequences, actual_cmp_seq_kvlen {len(kvlens)} and "
        f"actual_sel_seq_kvlen {len(blocks)}; they must have as many.",
    )
    for what, mask, columns in (
        ("atten_mask", atten_mask, kvlens),
        ("topk_mask", topk_mask, blocks),
    ):
        needed = [max(qlens, default=0), max(columns, default=0)]
        require(
            mask is None
            or (mask.dim() == 2 and all(a >= b for a, b in zip(mask.shape, needed, strict=True))),
            f"{name}: {what} has shape {mask if mask is None else list(mask.shape)}; it needs at least "
            f"{needed}.",
        )
    heads, found = key.size(1), []
    parts = zip(
        query[: sum(qlens)].split(qlens), key[: sum(kvlens)].split(kvlens),
        value[: sum(kvlens)].split(kvlens), blocks, strict=True,
    )  # fmt: skip
    for q, k, v, count in parts:
        if q.size(0) == 0:
            continue
        added = None
        if atten_mask is not None:
            added = wide(atten_mask[: q.size(0), : k.size(0)].ne(0)) * _DROPPED
        p, out, m, total = _heads_of(q, k, v, scale_value, added)
        table = _shares(k.size(0), count, *sizes, p)
        importance = p.detach().sum(1) @ table
        if topk_mask is not None:
            forced = topk_mask[: q.size(0), :count].ne(0)
            importance = importance.masked_fill(forced, _FORCED)
        best = _best_blocks(importance, select_block_count).transpose(0, 1)
        found.append((out, best, m, total))
    zeros = wide(query.new_zeros(()))
    shapes = (
        ((head_num, value.size(2)), 0, zeros.dtype), ((heads, select_block_count), -1, torch.int32),
        ((head_num,), 0, zeros.dtype), ((head_num,), 0, zeros.dtype),
    )  # fmt: skip
    rest = query.size(0) - sum(qlens)
    out, best, m, total = (
        torch.cat([*(f[i] for f in found), zeros.new_full((rest, *shape), fill, dtype=dtype)])
        for i, (shape, fill, dtype) in enumerate(shapes)
    )
    return out.to(query.dtype), best, _eight(m.detach()), _eight(total.detach())


class _Pages:
    """Keys and values of inference: (blocks, block size, N * D) or (blocks, block size, N, D)."""

    def __init__(self, name, key, value, kv_heads: int, page: int, table, lengths, argument: str):
        _positive(name, key_value_head_num=kv_heads, page_block_size=page)
        split = []
        for what, x in (("key", key), ("value", value)):
            ok = x.dim() == 4 and x.size(2) == kv_heads
            ok = ok or (x.dim() == 3 and x.size(2) % kv_heads == 0)
            require(
                ok and x.size(1) == page,
                f"{name}: {what} has shape {list(x.shape)}; allowed: (blocks, {page}, {kv_heads} heads "
                "of one size).",
            )
            split.append(x if x.dim() == 4 else x.unflatten(2, (kv_heads, -1)))
        require(
            split[0].size(0) == split[1].size(0),
            f"{name}: key has {split[0].size(0)} blocks and value {split[1].size(0)}; they must have "
            "as many.",
        )
        self.keys = tokens.Keys(name, split[0], "PA_BSND", lengths, argument, table)
        self.key, self.value = (x.flatten(0, 1) for x in split)
        self.heads = kv_heads


def _queries(name, query, layout: str, heads: int, qlens, allowed):
    """(query (T, N, D), its tokens)."""
    require(
        layout in allowed,
        f"{name}: layout only support {' or '.join(allowed)} now. But got {layout}",
        "VALUE",
    )
    rank = 4 if layout == "BSND" else 3
    require(
        query.dim() == rank,
        f"{name}: query has shape {list(query.shape)}; layout {layout} takes {rank} dimensions.",
    )
    if layout == "BSH":
        require(
            heads > 0 and query.size(2) % heads == 0,
            f"{name}: head_num is {heads}, but query's last size {query.size(2)} is no multiple.",
        )
        query = query.unflatten(2, (heads, -1))
    require(
        query.size(-2) == heads,
        f"{name}: head_num is {heads}, but query has {query.size(-2)} heads.",
    )
    where = tokens.tokens_of(name, query, layout, qlens, "actual_seq_qlen")
    return query if layout == "TND" else query.flatten(0, 1), where


@implements("npu_nsa_compress_attention_infer")
def npu_nsa_compress_attention_infer(
    query, key, value, scale_value, head_num, key_value_head_num, select_block_size,
    select_block_count, page_block_size, compress_block_size, compress_stride, *, layout="TND",
    atten_mask=None, block_table=None, topk_mask=None, actual_seq_qlen=None,
    actual_cmp_seq_kvlen=None, actual_sel_seq_kvlen=None,
):  # fmt: skip
    name = "npu_nsa_compress_attention_infer"
    sizes = compress_block_size, compress_stride, select_block_size
    _check_sizes(name, *sizes, select_block_count)
    same_dtype(name, query=query, key=key, value=value)
    q, where = _queries(name, query, layout, head_num, actual_seq_qlen, ("TND", "BSND"))
    pages = _Pages(
        name, key, value, key_value_head_num, page_block_size, block_table, actual_cmp_seq_kvlen,
        "actual_cmp_seq_kvlen",
    )  # fmt: skip
    tokens.check_batches(name, where, pages.keys)
    longest = max((int(n) for n in actual_cmp_seq_kvlen), default=0)
    places = torch.arange(longest, device=q.device)
    sequence = where.sequence.flatten()
    row, there = pages.keys.find(sequence[:, None], places)
    keep = there & where.live.flatten()[:, None]
    rows, keep = (x[:, None].expand(-1, pages.heads, -1) for x in (row, keep))
    k, v = (wide(chosen.take(x, rows)) for x in (pages.key, pages.value))
    scores = wide(q).unflatten(1, (pages.heads, -1)) @ k.transpose(-1, -2) * scale_value
    p, _, total = softmax_parts(scores.masked_fill(~keep[:, :, None], float("-inf")))
    p = p / torch.where(total == 0, 1, total)
    out = torch.where(total == 0, 0, p @ v).flatten(1, 2)
    counts = [_block_count(int(n), *sizes) for n in actual_cmp_seq_kvlen]
    table = _shares(longest, max(counts, default=0), *sizes, p)
    best = _ordered(p.sum(2) @ table, torch.tensor(counts, device=q.device)[sequence])
    best = best.masked_fill(~where.live.flatten()[:, None, None], -1)[..., :select_block_count]
    missing = select_block_count - best.size(-1)
    best = torch.nn.functional.pad(best, (0, missing), value=-1).to(torch.int32)
    lead = query.shape[:-2]
    return out.to(query.dtype).view(*lead, head_num, v.size(-1)), best.view(*lead, *best.shape[1:])


def _ordered(importance, counts):
    """Block 0, the last two, then the middle by importance; -1 past a query's number of blocks."""
    blocks = importance.size(-1)
    place = torch.arange(blocks, device=importance.device)
    counts = counts[:, None, None]
    # Larger than any sum of probabilities: the order of the blocks that always come first.
    rank = torch.where(place == counts - 1, _FORCED, importance)
    rank = torch.where(place == counts - 2, _FORCED + 1, rank)
    rank = torch.where(place == 0, _FORCED + 2, rank).masked_fill(place >= counts, float("-inf"))
    best, order = rank.sort(stable=True, dim=-1, descending=True)
    return order.masked_fill(best.isneginf(), -1)


# ---- attention over chosen blocks ---------------------------------------------------------


class _Select:
    """The rows of each query's blocks in packed keys; with a mask causal inside the sequence."""

    def __init__(
        self, name, query, key, value, topk, head_num, block, count, mask, qlens, kvlens
    ):  # fmt: skip
        _positive(name, select_block_size=block, select_block_count=count)
        _check_qkv(name, query, key, value, head_num)
        _ends(name, qlens, query.size(0), "actual_seq_qlen")
        _ends(name, kvlens, key.size(0), "actual_seq_kvlen")
        queries = tokens.packed(name, query.size(0), qlens, "actual_seq_qlen", query.device)
        keys = tokens.Keys(name, key, "TND", kvlens, "actual_seq_kvlen")
        tokens.check_batches(name, queries, keys)
        _check_topk(name, topk, [query.size(0), key.size(1), count])
        self.rows, self.keep = _block_rows(keys, queries, topk, block)
        if mask is not None:
            own = queries.place.flatten()[:, None, None]
            self.keep = self.keep & (_block_places(topk, block) <= own)


def _check_topk(name, topk, shape) -> None:
    require(
        list(topk.shape) == shape and topk.dtype in (torch.int32, torch.int64),
        f"{name}: topk_indices is {topk.dtype} {list(topk.shape)}; allowed: int32 {shape}.",
    )


def _block_places(topk, block: int):
    return (topk.long()[..., None] * block + torch.arange(block, device=topk.device)).flatten(-2)


def _block_rows(keys, queries, topk, block: int):
    """(rows, which are kept), both (T, N2, count * block)."""
    rows, there = keys.find(queries.sequence.flatten()[:, None, None], _block_places(topk, block))
    return rows, there & queries.live.flatten()[:, None, None]


@implements("npu_nsa_select_attention")
def npu_nsa_select_attention(
    query, key, value, topk_indices, scale_value, head_num, select_block_size, select_block_count, *,
    atten_mask=None, actual_seq_qlen=None, actual_seq_kvlen=None,
):  # fmt: skip
    call = _Select(
        "npu_nsa_select_attention", query, key, value, topk_indices, head_num, select_block_size,
        select_block_count, atten_mask, actual_seq_qlen, actual_seq_kvlen,
    )  # fmt: skip
    k, v = chosen.ready(key, call.rows), chosen.ready(value, call.rows)
    out, m, total = chosen.attend_chosen(
        query, call.rows, call.keep, lambda rows: wide(chosen.take(k, rows)),
        lambda rows, _: wide(chosen.take(v, rows)), v.size(2), scale=scale_value,
    )  # fmt: skip
    return out.to(query.dtype), _eight(m), _eight(total.detach())


@implements("npu_nsa_select_attention_grad")
def npu_nsa_select_attention_grad(
    grad, query, key, value, attention_out, softmax_max, softmax_sum, topk_indices, scale_value,
    head_num, select_block_size, select_block_count, *, atten_mask=None, actual_seq_qlen=None,
    actual_seq_kvlen=None,
):  # fmt: skip
    name = "npu_nsa_select_attention_grad"
    call = _Select(
        name, query, key, value, topk_indices, head_num, select_block_size, select_block_count,
        atten_mask, actual_seq_qlen, actual_seq_kvlen,
    )  # fmt: skip
    out_shape, statistic = [*query.shape[:2], value.size(2)], [*query.shape[:2], 8]
    shapes(
        name, grad=(grad, out_shape), attention_out=(attention_out, out_shape),
        softmax_max=(softmax_max, statistic), softmax_sum=(softmax_sum, statistic),
    )  # fmt: skip
    grads = chosen.attend_chosen_grad(
        query, key, value, call.rows, call.keep, grad, attention_out, softmax_max[..., 0],
        softmax_sum[..., 0], scale=scale_value,
    )  # fmt: skip
    return tuple(g.to(x.dtype) for g, x in zip(grads, (query, key, value), strict=True))


@implements("npu_nsa_select_attention_infer")
def npu_nsa_select_attention_infer(
    query, key, value, topk_indices, scale_value, head_num, key_value_head_num, select_block_size,
    select_block_count, page_block_size, *, layout="BSND", atten_mask=None, block_table=None,
    actual_seq_qlen=None, actual_seq_kvlen=None,
):  # fmt: skip
    name = "npu_nsa_select_attention_infer"
    _positive(name, select_block_size=select_block_size, select_block_count=select_block_count)
    same_dtype(name, query=query, key=key, value=value)
    q, where = _queries(name, query, layout, head_num, actual_seq_qlen, ("BSH", "BSND", "TND"))
    pages = _Pages(
        name, key, value, key_value_head_num, page_block_size, block_table, actual_seq_kvlen,
        "actual_seq_kvlen",
    )  # fmt: skip
    tokens.check_batches(name, where, pages.keys)
    lead = query.shape[:1] if layout == "TND" else query.shape[:2]
    _check_topk(name, topk_indices, [*lead, pages.heads, select_block_count])
    topk = topk_indices.reshape(-1, pages.heads, select_block_count)
    # The first negative number ends a list.
    topk = torch.where((topk >= 0).to(torch.int8).cummin(-1).values.bool(), topk, -1)
    rows, keep = _block_rows(pages.keys, where, topk, select_block_size)
    out, _, _ = chosen.attend_chosen(
        q, rows, keep, lambda rows: wide(chosen.take(pages.key, rows)),
        lambda rows, _: wide(chosen.take(pages.value, rows)), pages.value.size(2), scale=scale_value,
    )  # fmt: skip
    out = out.to(query.dtype)
    return out.view(*lead, -1) if layout == "BSH" else out.view(*lead, *out.shape[1:])
