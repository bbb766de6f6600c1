# SPDX-License-Identifier: Apache-2.0
"""Attention of each query over the key blocks that an index lists, and over blocks that a mask keeps."""

import torch

from torch_npu.ops import _chosen as chosen
from torch_npu.ops import _lowp as lowp
from torch_npu.ops import _tokens as tokens
from torch_npu.ops import implements
from torch_npu.ops._check import refuse_given, require, same_dtype, shapes, wide

_WHOLE = 9223372036854775807
_INT8 = 1  # PyTorch's number of int8


class _Listed:
    """The checked lists of a call: which rows of the keys each query attends to."""

    def __init__(
        self, name, query, key, indices, layout, layout_kv, qlens, kvlens, table, block, mode
    ):  # fmt: skip
        self.name, self.layout = name, layout
        require(query.numel() > 0, f"{name}: Input query should not be empty.", "VALUE")
        tokens.check_layout(name, "query", layout, query, ("BSND", "TND"))
        tokens.check_layout(name, "key", layout_kv, key, ("BSND", "TND", "PA_BSND"))
        queries = tokens.tokens_of(name, query, layout, qlens, "actual_seq_lengths_query")
        self.keys = tokens.Keys(name, key, layout_kv, kvlens, "actual_seq_lengths_kv", table)
        tokens.check_batches(name, queries, self.keys)
        heads = key.size(2 if layout_kv != "TND" else 1)
        require(
            heads > 0 and query.size(-2) % heads == 0,
            f"{name}: query has {query.size(-2)} heads and key {heads}; query's must be a multiple.",
        )
        require(
            indices.dim() == query.dim() and indices.shape[:-1] == (*query.shape[:-2], heads),
            f"{name}: sparse_indices has shape {list(indices.shape)}; allowed: "
            f"{[*query.shape[:-2], heads]} and the number of blocks.",
        )
        require(
            indices.dtype in (torch.int32, torch.int64),
            f"{name}: sparse_indices is {indices.dtype}; allowed: int32.",
            "TYPE",
        )
        require(block > 0, f"{name}: sparse_block_size is {block}; it must be positive.", "VALUE")
        last = tokens.last_key(queries, self.keys, mode).flatten()
        sequence = queries.sequence.flatten()[:, None, None]
        ids = indices.reshape(-1, heads, indices.size(-1)).to(torch.int64)
        listed = (ids >= 0).to(torch.int8).cummin(-1).values.bool() if ids.size(-1) else ids > 0
        place = ids[..., None] * block + torch.arange(block, device=ids.device)
        listed = listed[..., None].expand_as(place).flatten(2)
        place = place.flatten(2)
        self.rows, there = self.keys.find(sequence, place)
        live = queries.live.flatten()[:, None, None]
        self.keep = there & listed & live & (place <= last[:, None, None])

    def flat(self, x):
        return x if self.layout == "TND" else x.flatten(0, 1)

    def back(self, x, like):
        return x.view(*like.shape[:-1], x.size(-1)).to(like.dtype)

    def statistic(self, x, query):
        """(T, N1) as (N2, T, G) or (B, N2, S, G)."""
        heads = self.rows.size(1)
        x = x.view(*query.shape[:-2], heads, query.size(-2) // heads)
        return x.transpose(-2, -3).contiguous()

    def from_statistic(self, x):
        return self.flat(x.transpose(-2, -3)).flatten(1)


def _with_rope(name, x, rope, what: str):
    if rope is None:
        return x
    require(
        rope.shape[:-1] == x.shape[:-1] and rope.dtype == x.dtype,
        f"{name}: {what}_rope is {rope.dtype} {list(rope.shape)}; allowed: {x.dtype} "
        f"{list(x.shape[:-1])} and a size.",
    )
    return torch.cat((x, rope), -1)


def _check_values(name, key, value, query_rope, key_rope, query) -> None:
    same_dtype(name, query=query, key=key, value=value)
    require(
        key.shape[:-1] == value.shape[:-1],
        f"{name}: key has shape {list(key.shape)} and value {list(value.shape)}; they may differ in "
        "the last size only.",
    )
    require(
        key.size(-1) == query.size(-1),
        f"{name}: query's heads have size {query.size(-1)} and key's {key.size(-1)}; they must be the "
        "same.",
    )
    require(
        (query_rope is None) == (key_rope is None),
        f"{name}: query_rope is {'None' if query_rope is None else 'given'} and key_rope "
        f"{'None' if key_rope is None else 'given'}; give both or none.",
    )


@implements("npu_sparse_flash_attention")
def npu_sparse_flash_attention(
    query, key, value, sparse_indices, scale_value, *, block_table=None, actual_seq_lengths_query=None,
    actual_seq_lengths_kv=None, query_rope=None, key_rope=None, sparse_block_size=1,
    layout_query="BSND", layout_kv="BSND", sparse_mode=3, pre_tokens=_WHOLE, next_tokens=_WHOLE,
    attention_mode=0, return_softmax_lse=False, sinks=None,
):  # fmt: skip
    name = "npu_sparse_flash_attention"
    tokens.check_mode(name, sparse_mode, pre_tokens, next_tokens)
    call = _Listed(
        name, query, key, sparse_indices, layout_query, layout_kv, actual_seq_lengths_query,
        actual_seq_lengths_kv, block_table, sparse_block_size, sparse_mode,
    )  # fmt: skip
    _check_values(name, key, value, query_rope, key_rope, query)
    shapes(name, sinks=(sinks, [query.size(-2)]))
    q = call.flat(_with_rope(name, query, query_rope, "query"))
    k, v = (
        chosen.ready(x if layout_kv == "TND" else x.flatten(0, 1), call.rows)
        for x in (_with_rope(name, key, key_rope, "key"), value)
    )

    def value_at(rows, keys):
        # Latent attention's values are its keys: gathered once when given as one tensor.
        return keys[..., : v.size(-1)] if value is key else wide(chosen.take(v, rows))

    out, m, total = chosen.attend_chosen(
        q, call.rows, call.keep, lambda rows: wide(chosen.take(k, rows)), value_at, v.size(-1),
        scale=scale_value, sinks=None if sinks is None else sinks.detach(),
    )  # fmt: skip
    out = out.to(query.dtype).view(*query.shape[:-1], v.size(-1))
    if not return_softmax_lse:
        none = m.new_empty(0)
        return out, none, none.clone()
    return out, call.statistic(m.detach(), query), call.statistic(total.detach(), query)


@implements("npu_sparse_flash_attention_grad")
def npu_sparse_flash_attention_grad(
    query, key, value, sparse_indices, d_out, out, softmax_max, softmax_sum, scale_value,
    sparse_block_size, query_rope=None, key_rope=None, actual_seq_qlen=None, actual_seq_kvlen=None,
    layout="BSND", sparse_mode=3, pre_tokens=_WHOLE, next_tokens=_WHOLE, attention_mode=0,
):  # fmt: skip
    name = "npu_sparse_flash_attention_grad"
    tokens.check_mode(name, sparse_mode, pre_tokens, next_tokens)
    call = _Listed(
        name, query, key, sparse_indices, layout, layout, actual_seq_qlen, actual_seq_kvlen, None,
        sparse_block_size, sparse_mode,
    )  # fmt: skip
    _check_values(name, key, value, query_rope, key_rope, query)
    _check_statistics(name, call, query, softmax_max=softmax_max, softmax_sum=softmax_sum)
    q = call.flat(_with_rope(name, query, query_rope, "query"))
    k = call.flat(_with_rope(name, key, key_rope, "key"))
    dq, dk, dv = chosen.attend_chosen_grad(
        q, k, call.flat(value), call.rows, call.keep, call.flat(d_out), call.flat(out),
        call.from_statistic(softmax_max), call.from_statistic(softmax_sum), scale=scale_value,
    )  # fmt: skip
    size = query.size(-1)
    ropes = [query.new_empty(0), key.new_empty(0)]
    if query_rope is not None:
        ropes = [call.back(dq[..., size:], query_rope), call.back(dk[..., size:], key_rope)]
    return (
        call.back(dq[..., :size], query), call.back(dk[..., :size], key), call.back(dv, value), *ropes
    )  # fmt: skip


def _check_statistics(name, call, query, **given) -> None:
    heads = call.rows.size(1)
    shape = [*query.shape[:-2], heads, query.size(-2) // heads]
    shape[-2], shape[-3] = shape[-3], shape[-2]
    for what, x in given.items():
        require(
            list(x.shape) == shape,
            f"{name}: {what} has shape {list(x.shape)}; allowed: {shape}, as the forward operator "
            "returns it with return_softmax_lse=True.",
        )


@implements("npu_kv_quant_sparse_flash_attention")
def npu_kv_quant_sparse_flash_attention(
    query, key, value, sparse_indices, scale_value, key_quant_mode, value_quant_mode, *,
    key_dequant_scale=None, value_dequant_scale=None, block_table=None, actual_seq_lengths_query=None,
    actual_seq_lengths_kv=None, sparse_block_size=1, layout_query="BSND", layout_kv="BSND",
    sparse_mode=3, pre_tokens=_WHOLE, next_tokens=_WHOLE, attention_mode=0, quant_scale_repo_mode=1,
    tile_size=128, rope_head_dim=64, key_dtype=None, value_dtype=None, sinks=None,
):  # fmt: skip
    """A row of keys: quantised numbers, rotary part in query's dtype, float32 scales of the tiles."""
    name = "npu_kv_quant_sparse_flash_attention"
    refuse_given(name, key_dequant_scale=key_dequant_scale, value_dequant_scale=value_dequant_scale)
    for what, found, allowed in (
        ("key_quant_mode", key_quant_mode, 2), ("value_quant_mode", value_quant_mode, 2),
        ("quant_scale_repo_mode", quant_scale_repo_mode, 1), ("attention_mode", attention_mode, 2),
    ):  # fmt: skip
        require(found == allowed, f"{name}: {what} is {found}; allowed: {allowed}.", "VALUE")
    tokens.check_mode(name, sparse_mode, pre_tokens, next_tokens)
    call = _Listed(
        name, query, key, sparse_indices, layout_query, layout_kv, actual_seq_lengths_query,
        actual_seq_lengths_kv, block_table, sparse_block_size, sparse_mode,
    )  # fmt: skip
    same_dtype(name, query=query)
    shapes(name, sinks=(sinks, [query.size(-2)]))
    size = query.size(-1) - rope_head_dim
    require(
        size > 0 and tile_size > 0 and size % tile_size == 0,
        f"{name}: query's last size is {query.size(-1)}, rope_head_dim {rope_head_dim} and tile_size "
        f"{tile_size}; the size without the rotary part must be a multiple of tile_size.",
    )
    split = [size, rope_head_dim * query.element_size(), size // tile_size * 4]
    require(
        key.element_size() == 1 and key.size(-1) == sum(split),
        f"{name}: key is {key.dtype} with rows of {key.size(-1)}; allowed: rows of {sum(split)} bytes, "
        f"{split[0]} numbers, {split[1]} bytes of the rotary part and {split[2]} of scales.",
    )
    read = _reader(name, key, key_dtype)
    bytes_ = (key if layout_kv == "TND" else key.flatten(0, 1)).view(torch.uint8)

    def key_at(rows):
        numbers, rope, scales = (x.contiguous() for x in chosen.take(bytes_, rows).split(split, -1))
        scales = scales.view(torch.float32).repeat_interleave(tile_size, -1)
        nope = (read(numbers) * scales).to(query.dtype)
        return wide(torch.cat((nope, rope.view(query.dtype)), -1))

    out, _, _ = chosen.attend_chosen(
        call.flat(query), call.rows, call.keep, key_at, lambda _, k: k[..., :size], size,
        scale=scale_value, sinks=sinks, narrow=query.dtype,
    )  # fmt: skip
    return out.to(query.dtype).view(*query.shape[:-1], size)


def _reader(name, key, number):
    """What turns bytes into the numbers that key_dtype says they are; None: those of key's dtype."""
    if number == _INT8 or (number is None and key.dtype == torch.int8):
        return lambda x: x.view(torch.int8).float()
    if number is None:
        kind = lowp.kind_of_tensor(key, None, name, "key", (lowp.E4M3,))
    else:
        kind = lowp.kind_of(number, name, "key_dtype", (lowp.E4M3, lowp.HIF8))
    return lambda x: lowp.decode(x if kind == lowp.HIF8 else x.view(kind), kind)


# ---- blocks that a mask keeps -------------------------------------------------------------


class _Blocks:
    """The checked arguments of npu_block_sparse_attention; tensors as (B, N, S, D)."""

    def __init__(
        self, name, query, key, value, mask, block_shape, layout, kv_layout, kv_heads, qlens, kvlens
    ):  # fmt: skip
        require(
            query.dim() in (3, 4),
            f"{name}: query should be 3 or 4 dimensional, but got {query.dim()}",
        )
        require(
            query.dtype == key.dtype == value.dtype,
            f"{name}: query, key, value must have the same dtype, got query={query.dtype}, "
            f"key={key.dtype}, value={value.dtype}",
        )
        same_dtype(name, query=query)
        block_shape = [128, 128] if block_shape is None else list(block_shape)
        require(
            len(block_shape) == 2 and block_shape[0] > 0 and block_shape[1] > 0,
            f"{name}: block_shape is {block_shape}; allowed: two positive numbers.",
        )
        require(
            block_shape[1] % 128 == 0,
            f"{name}: block_shape[1] (blockShapeY) must be a multiple of 128, got {block_shape[1]}",
        )
        self.name, self.block, self.mask = name, block_shape, mask
        self.layouts = layout, kv_layout
        for what, given, x in (
            ("q", layout, query),
            ("kv", kv_layout, key),
            ("kv", kv_layout, value),
        ):
            require(
                given in ("TND", "BNSD") and x.dim() == (3 if given == "TND" else 4),
                f"{name}: {what}_input_layout is {given} for a tensor of shape {list(x.shape)}; allowed: "
                "TND with 3 dimensions, BNSD with 4.",
            )
        packed = "TND" in self.layouts
        require(
            not packed or (qlens is not None and kvlens is not None),
            f"{name}: actual_seq_lengths is {qlens} and actual_seq_lengths_kv {kvlens}; layout TND "
            "needs both, the length of each sequence.",
        )
        self.qlens = self._lengths(query, layout, qlens, "actual_seq_lengths")
        self.kvlens = self._lengths(key, kv_layout, kvlens, "actual_seq_lengths_kv")
        require(
            len(self.qlens) == len(self.kvlens),
            f"{name}: query has {len(self.qlens)} sequences and key {len(self.kvlens)}; they must have "
            "as many.",
        )
        heads, own = query.size(1), key.size(1)
        require(
            own > 0 and own == value.size(1) and heads % own == 0 and kv_heads == own,
            f"{name}: query has {heads} heads, key {own}, value {value.size(1)}, and "
            f"num_key_value_heads is {kv_heads}; key and value must have num_key_value_heads, and "
            "query a multiple of it.",
        )
        self._check_mask(len(self.qlens), heads)

    def _lengths(self, x, layout, given, argument):
        if given is None:
            return [x.size(2)] * x.size(0)
        given = [int(n) for n in given]
        fits = sum(given) <= x.size(0) if layout == "TND" else all(n <= x.size(2) for n in given)
        require(
            all(n >= 0 for n in given) and fits and (layout == "TND" or len(given) == x.size(0)),
            f"{self.name}: {argument} is {given}, which does not fit {layout} {list(x.shape)}; give the "
            "length of each sequence, not a cumulative one.",
        )
        return given

    def _check_mask(self, batch: int, heads: int) -> None:
        longest = [max(lengths, default=0) for lengths in (self.qlens, self.kvlens)]
        blocks = [-(-n // size) for n, size in zip(longest, self.block)]
        shape = list(self.mask.shape)
        require(
            len(shape) == 4 and shape[:2] == [batch, heads]
            and all(found >= needed for found, needed in zip(shape[2:], blocks)),
            f"{self.name}: block_sparse_mask has shape {shape}; allowed: {[batch, heads, *blocks]}, one "
            f"number for each {self.block[0]} x {self.block[1]} block.",
        )  # fmt: skip

    def each(self, x, which: int):
        """(N, S, D) of every sequence."""
        lengths = (self.qlens, self.kvlens)[which]
        if self.layouts[which] == "BNSD":
            return [x[b, :, :n] for b, n in enumerate(lengths)]
        parts = x[: sum(lengths)].split(lengths)
        return [part.transpose(0, 1) for part in parts]

    def join(self, parts, like, which: int):
        lengths = (self.qlens, self.kvlens)[which]
        if self.layouts[which] == "TND":
            whole = torch.cat([part.transpose(0, 1) for part in parts]) if parts else None
            out = like if whole is None else _filled(whole, like, 0)
            return out
        if all(n == like.size(2) for n in lengths):
            return torch.stack(parts) if parts else like
        return torch.stack([_filled(part, like[0], 1) for part in parts])

    def keep(self, b: int):
        """(N, Sq, Skv)"""
        x, y = self.block
        rows = self.mask[b].ne(0).repeat_interleave(x, 1)[:, : self.qlens[b]]
        return rows.repeat_interleave(y, 2)[:, :, : self.kvlens[b]]


def _filled(x, like, dim: int):
    """x with the zeros of `like` after it along a dimension."""
    missing = like.size(dim) - x.size(dim)
    return torch.cat((x, like.narrow(dim, 0, missing)), dim) if missing else x


def _check_precision(name, inner_precise: int, dtype) -> None:
    require(
        inner_precise in (0, 1),
        f"{name}: inner_precise is {inner_precise}; allowed: 0, 1.",
        "VALUE",
    )
    require(
        dtype != torch.bfloat16 or inner_precise == 0,
        f"{name}: when query/key/value are bfloat16, inner_precise must be 0, got {inner_precise}",
    )


def _block_scores(q, k, scale: float, keep):
    k = k.repeat_interleave(q.size(0) // k.size(0), 0)
    scores = wide(q) @ wide(k).transpose(-1, -2) * scale
    return scores.masked_fill(~keep, float("-inf"))


@implements("npu_block_sparse_attention")
def npu_block_sparse_attention(
    query, key, value, block_sparse_mask, block_shape, *, q_input_layout="TND", kv_input_layout="TND",
    num_key_value_heads=1, scale_value=0.0, inner_precise=1, actual_seq_lengths=None,
    actual_seq_lengths_kv=None, softmax_lse_flag=0,
):  # fmt: skip
    name = "npu_block_sparse_attention"
    call = _Blocks(
        name, query, key, value, block_sparse_mask, block_shape, q_input_layout, kv_input_layout,
        num_key_value_heads, actual_seq_lengths, actual_seq_lengths_kv,
    )  # fmt: skip
    _check_precision(name, inner_precise, query.dtype)
    outs, lses = [], []
    parts = zip(call.each(query, 0), call.each(key, 1), call.each(value, 1), strict=True)
    for b, (q, k, v) in enumerate(parts):
        scores = _block_scores(q, k, scale_value, call.keep(b))
        lse = torch.logsumexp(scores, -1, keepdim=True)
        p = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0))
        outs.append(p @ wide(v.repeat_interleave(q.size(0) // v.size(0), 0)))
        lses.append(lse)
    zeros = wide(query.new_zeros(())).expand(*query.shape[:-1], value.size(-1))
    lacking = torch.full_like(zeros[..., :1], float("-inf"))
    return call.join(outs, zeros, 0).to(query.dtype), call.join(lses, lacking, 0).detach()


@implements("npu_block_sparse_attention_backward")
def npu_block_sparse_attention_backward(
    d_out, query, key, value, attention_out, softmax_lse, block_sparse_mask, block_shape,
    actual_seq_lengths, actual_seq_lengths_kv, q_input_layout, kv_input_layout, num_key_value_heads,
    scale_value,
):  # fmt: skip
    name = "npu_block_sparse_attention_backward"
    call = _Blocks(
        name, query, key, value, block_sparse_mask, block_shape, q_input_layout, kv_input_layout,
        num_key_value_heads, actual_seq_lengths, actual_seq_lengths_kv,
    )  # fmt: skip
    out_shape = (*query.shape[:-1], value.size(-1))
    shapes(
        name, d_out=(d_out, out_shape), attention_out=(attention_out, out_shape),
        softmax_lse=(softmax_lse, (*query.shape[:-1], 1)),
    )  # fmt: skip
    found = []
    whole = [call.each(x, 0) for x in (query, d_out, attention_out, softmax_lse)]
    parts = zip(*whole, call.each(key, 1), call.each(value, 1), strict=True)
    for b, (q, g, out, lse, k, v) in enumerate(parts):
        group = q.size(0) // k.size(0)
        scores = _block_scores(q, k, scale_value, call.keep(b))
        p = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0))
        g, each_v = wide(g), wide(v).repeat_interleave(group, 0)
        ds = (
            p * (g @ each_v.transpose(-1, -2) - (g * wide(out)).sum(-1, keepdim=True)) * scale_value
        )
        dk, dv = ds.transpose(-1, -2) @ wide(q), p.transpose(-1, -2) @ g
        dq = ds @ wide(k).repeat_interleave(group, 0)
        found.append((dq, dk.unflatten(0, (-1, group)).sum(1), dv.unflatten(0, (-1, group)).sum(1)))
    grads = zip(*found, strict=True) if found else ([], [], [])
    likes = zip((query, key, value), (0, 1, 1), strict=True)
    return tuple(
        call.join(list(parts), torch.zeros_like(wide(x)), which).to(x.dtype)
        for parts, (x, which) in zip(grads, likes, strict=True)
    )
