# SPDX-License-Identifier: Apache-2.0
"""Operators of Ascend's transformer library: packed and paged attention, rotation, expert choice."""

import torch

from torch_npu.ops import _attend as core
from torch_npu.ops import implements
from torch_npu.ops._check import refuse_given, require, unsupported, wide


def _nothing(*args, **kwargs):
    return None


def _heads(x, count: int, name: str, what: str):
    """(tokens, heads, size) of packed tokens, which may come with heads and size in one."""
    if x.dim() == 2:
        require(
            x.size(1) % count == 0,
            f"{name}: the last size of {what} is {x.size(1)}, which {count} heads do not divide.",
        )
        return x.unflatten(-1, (count, -1))
    require(
        x.dim() == 3 and x.size(1) == count,
        f"{name}: {what} has shape {list(x.shape)}; allowed: (tokens, {count}, size) or (tokens, {count} * size).",
    )
    return x


def _numbers(lengths, total: int, name: str, what: str) -> list[int]:
    """Lengths of sequences on the host; they must add up to the tokens there are."""
    values = lengths.flatten().tolist()
    require(
        all(v >= 0 for v in values) and sum(values) == total,
        f"{name}: {what} adds up to {sum(values)}, and there are {total} tokens.",
    )
    return values


def _paged(cache, table, length: int, name: str, start: int = 0):
    """Tokens (length, heads, size) of one sequence in a cache (blocks, block_size, heads, size)."""
    size = cache.size(1)
    blocks = table[: -(-(start + length) // size)].to(torch.int64)
    require(
        blocks.numel() * size >= start + length,
        f"{name}: a sequence has {start + length} tokens, and its row of the block table holds {table.numel() * size}.",
    )
    return cache.index_select(0, blocks).flatten(0, 1)[start : start + length]


def _one(q, k, v, scale: float, added=None, drop=None):
    """Attention of one sequence, tokens first: (out (Tq, N, Dv) wide, logsumexp (N, Tq))."""
    first = [x.transpose(0, 1)[None] for x in (q, k, v)]
    out, m, total = core.attend(*first, scale=scale, pse=added, pse_type=0, drop=drop)
    lse = (m + torch.log(total))[0, :, :, 0]
    return out[0].transpose(0, 1), lse


def _causal(queries: int, keys: int, device):
    return core.band(queries, keys, keys - queries, core.FAR, 0, device)


def _write(out, parts, like) -> None:
    whole = torch.cat(parts) if parts else like.new_empty(0)
    out.copy_(whole.reshape(out.shape).to(out.dtype))


@implements("atb::_npu_flash_attention", meta=_nothing)
def _npu_flash_attention(
    query, key, value, mask, seq_len, scale_value, num_heads, num_kv_heads, out
):
    name = "_npu_flash_attention"
    q = _heads(query, num_heads, name, "query")
    k, v = (_heads(x, num_kv_heads, name, what) for x, what in ((key, "key"), (value, "value")))
    require(
        mask.dim() in (2, 3),
        f"{name}: mask has {mask.dim()} dimensions; allowed: 2 (length, length), 3 (batch, length, length).",
    )
    parts, start = [], 0
    for b, n in enumerate(_numbers(seq_len, q.size(0), name, "seq_len")):
        added = (mask[b if mask.size(0) > 1 else 0] if mask.dim() == 3 else mask)[:n, :n]
        require(
            list(added.shape) == [n, n],
            f"{name}: mask has shape {list(mask.shape)}, and a sequence has {n} tokens.",
        )
        here = slice(start, start + n)
        parts.append(_one(q[here], k[here], v[here], scale_value, wide(added)[None, None])[0])
        start += n
    _write(out, parts, q)


def _last_queries(name, q, key_cache, value_cache, table, seq_len, context_lens, scale, added=None):
    """Each sequence's queries are its last tokens; without `added` they see nothing after themselves."""
    parts, start = [], 0
    lengths = _numbers(seq_len, q.size(0), name, "seq_len")
    for b, (n, total) in enumerate(zip(lengths, context_lens.flatten().tolist())):
        require(
            n <= total,
            f"{name}: a sequence has {n} query tokens and only {total} tokens in the cache.",
        )
        keys, values = (_paged(c, table[b], total, name) for c in (key_cache, value_cache))
        here = slice(start, start + n)
        extra = None if added is None else wide(added[here, :total])[None, None]
        drop = _causal(n, total, q.device) if added is None else None
        parts.append(_one(q[here], keys, values, scale, extra, drop)[0])
        start += n
    return parts


@implements("atb::_npu_flash_attention_qlens", meta=_nothing)
def _npu_flash_attention_qlens(
    query, key_cache, value_cache, block_table, mask, seq_len, context_lens, num_kv_heads,
    num_heads, scale_value, out,
):  # fmt: skip
    name = "_npu_flash_attention_qlens"
    q = _heads(query, num_heads, name, "query")
    parts = _last_queries(
        name, q, key_cache, value_cache, block_table, seq_len, context_lens, scale_value
    )
    _write(out, parts, q)


@implements("atb::_npu_paged_attention_splitfuse", meta=_nothing)
def _npu_paged_attention_splitfuse(
    query, key_cache, value_cache, block_table, context_lens, mask, seq_len, num_kv_heads,
    num_heads, scale_value, out,
):  # fmt: skip
    name = "_npu_paged_attention_splitfuse"
    q = _heads(query, num_heads, name, "query")
    require(
        mask.dim() == 2 and mask.size(0) == q.size(0),
        f"{name}: mask has shape {list(mask.shape)}; allowed: ({q.size(0)}, length), a row for each token.",
    )
    parts = _last_queries(
        name, q, key_cache, value_cache, block_table, seq_len, context_lens, scale_value, mask
    )
    _write(out, parts, q)


@implements("atb::_npu_paged_attention_mla", meta=_nothing)
def _npu_paged_attention_mla(
    query, key_cache, num_kv_heads, num_heads, scale_value, block_table, context_lens,
    mla_vheadsize, out,
):  # fmt: skip
    name = "_npu_paged_attention_mla"
    q = _heads(query, num_heads, name, "query")
    require(
        0 < mla_vheadsize <= key_cache.size(-1),
        f"{name}: mla_vheadsize is {mla_vheadsize}; allowed: 1 to {key_cache.size(-1)}, the size of a key.",
        "VALUE",
    )
    ones = torch.ones(q.size(0), dtype=torch.int64)
    values = key_cache[..., :mla_vheadsize]
    parts = _last_queries(name, q, key_cache, values, block_table, ones, context_lens, scale_value)
    _write(out, parts, q)


def _prefix_encoder(query, key, value, tables, seqlen, kv_seqlen, heads, scale, slopes, mask_type):
    name = "npu_self_attention_prefix_encoder"
    refuse_given(name, slopes=slopes)
    if mask_type not in (None, "mask_type_causal_mask", "mask_type_norm_compress"):
        unsupported(
            f"{name}: mask_type {mask_type} is not supported; allowed: mask_type_causal_mask, mask_type_norm_compress."
        )
    q = _heads(query, heads, name, "query")
    parts = _last_queries(name, q, key, value, tables, seqlen, kv_seqlen, scale)
    return torch.cat(parts).reshape(query.shape).to(query.dtype)


@implements(
    "atb::npu_self_attention_prefix_encoder", meta=lambda query, *a, **k: torch.empty_like(query)
)
def npu_self_attention_prefix_encoder(
    query, key, value, block_tables, seqlen, kv_seqlen, q_headnum, qk_scale, kv_headnum, *,
    mask=None, slopes=None, mask_type=None,
):  # fmt: skip
    return _prefix_encoder(
        query, key, value, block_tables, seqlen, kv_seqlen, q_headnum, qk_scale, slopes, mask_type
    )


@implements("atb::npu_self_attention_prefix_encoder.out", meta=lambda *a, output, **k: output)
def npu_self_attention_prefix_encoder_out(*args, output, mask=None, slopes=None, mask_type=None):
    query, key, value, tables, seqlen, kv_seqlen, heads, scale, _ = args
    return output.copy_(
        _prefix_encoder(
            query, key, value, tables, seqlen, kv_seqlen, heads, scale, slopes, mask_type
        )
    )


def _ring(q_nope, q_rope, k_nope, k_rope, value, seqlen, scale, causal: bool):
    name = "npu_ring_mla"
    both = seqlen.reshape(-1, seqlen.size(-1)) if seqlen.dim() else seqlen.reshape(1, 1)
    require(
        both.size(0) in (1, 2),
        f"{name}: seqlen has shape {list(seqlen.shape)}; allowed: (B), (2, B).",
    )
    queries = _numbers(both[0], q_nope.size(0), name, "seqlen")
    keys = _numbers(both[-1], k_nope.size(0), name, "seqlen of keys")
    q, k = torch.cat((q_nope, q_rope), -1), torch.cat((k_nope, k_rope), -1)
    outs, lses, i, j = [], [], 0, 0
    for n, m in zip(queries, keys):
        drop = _causal(n, m, q.device) if causal else None
        out, lse = _one(q[i : i + n], k[j : j + m], value[j : j + m], scale, drop=drop)
        outs.append(out)
        lses.append(lse)
        i, j = i + n, j + m
    return torch.cat(outs), torch.cat(lses, -1).float()


_CHOICES = {
    "kernel_type": ("kernel_type_default", "kernel_type_high_precision"),
    "mask_type": ("no_mask", "mask_type_triu"),
    "input_layout": ("type_bsnd",),
    "calc_type": ("calc_type_first_ring", "calc_type_default"),
}


def _ring_merged(args, pre_out, prev_lse, qk_scale, choices):
    for key, allowed in _CHOICES.items():
        require(
            choices[key] is None or choices[key] in allowed,
            f"npu_ring_mla: {key} is {choices[key]}; allowed: {', '.join(allowed)}.",
            "VALUE",
        )
    q_nope, q_rope, k_nope, k_rope, value, _, seqlen, _, _ = args
    causal = choices["mask_type"] == "mask_type_triu"
    out, lse = _ring(q_nope, q_rope, k_nope, k_rope, value, seqlen, qk_scale, causal)
    if choices["calc_type"] == "calc_type_default":
        require(
            pre_out is not None and prev_lse is not None,
            "npu_ring_mla: calc_type is calc_type_default: pre_out and prev_lse must be given.",
        )
        earlier = wide(prev_lse)
        both = torch.logaddexp(earlier, lse)
        weights = [torch.exp(part - both).t()[:, :, None] for part in (earlier, lse)]
        out, lse = wide(pre_out) * weights[0] + out * weights[1], both
    return out.to(q_nope.dtype), lse


def _ring_meta(q_nope, q_rope, k_nope, k_rope, value, mask, seqlen, head_num, *args, **kwargs):
    tokens = q_nope.size(0)
    lse = q_nope.new_empty((head_num, tokens), dtype=torch.float32)
    return q_nope.new_empty((tokens, head_num, value.size(2))), lse


@implements("atb::npu_ring_mla", meta=_ring_meta)
def npu_ring_mla(*args, pre_out=None, prev_lse=None, qk_scale=1.0, **choices):
    given = {key: choices.get(key) for key in _CHOICES}
    return _ring_merged(args, pre_out, prev_lse, qk_scale, given)


@implements(
    "atb::npu_ring_mla.out", meta=lambda *a, output, softmax_lse, **k: (output, softmax_lse)
)
def npu_ring_mla_out(
    *args, output, softmax_lse, pre_out=None, prev_lse=None, qk_scale=1.0, **choices
):
    given = {key: choices.get(key) for key in _CHOICES}
    out, lse = _ring_merged(args, pre_out, prev_lse, qk_scale, given)
    return output.copy_(out), softmax_lse.copy_(lse)


def _best_groups(scores, groups: int, n: int, keep: int, name: str):
    """True for experts of the `keep` groups with the largest sum of their n best scores."""
    experts = scores.size(-1)
    require(
        groups > 0 and experts % groups == 0 and 0 <= keep <= groups and 0 < n <= experts // groups,
        f"{name}: {experts} experts in {groups} groups, {keep} of them kept, {n} best scores each: impossible.",
        "VALUE",
    )
    inside = scores.unflatten(-1, (groups, -1))
    value = inside.sort(-1, descending=True)[0][..., :n].sum(-1)
    best = value.sort(dim=-1, descending=True, stable=True)[1][..., :keep]
    kept = torch.zeros_like(value, dtype=torch.bool).scatter(-1, best, True)
    return kept.repeat_interleave(experts // groups, -1)


@implements("atb::_npu_group_topk", meta=_nothing)
def _npu_group_topk(self, k=0, group_num=1, n=1):
    kept = _best_groups(wide(self), group_num, max(n, 1), k, "_npu_group_topk")
    self.masked_fill_(~kept, 0)


def _experts(
    x, add_num, mapping_num, mapping_table, activation_type, group_num, group_topk, n, k, is_norm,
    scale, enable_expert_mapping,
):  # fmt: skip
    name = "npu_fused_add_topk_div"
    refuse_given(
        name, mapping_num=mapping_num, mapping_table=mapping_table,
        enable_expert_mapping=enable_expert_mapping or None,
    )  # fmt: skip
    require(
        activation_type in (None, "activation_sigmoid"),
        f"{name}: activation_type is {activation_type}; allowed: activation_sigmoid.",
        "VALUE",
    )
    require(0 < k <= x.size(-1), f"{name}: k is {k}; allowed: 1 to {x.size(-1)}.", "VALUE")
    weights = torch.sigmoid(wide(x))
    choice = weights + wide(add_num)
    kept = _best_groups(choice, group_num, n, group_topk, name)
    choice = choice.masked_fill(~kept, float("-inf"))
    indices = choice.sort(dim=-1, descending=True, stable=True)[1][..., :k]
    y = weights.gather(-1, indices)
    y = y / y.sum(-1, keepdim=True) if is_norm else y
    return (y * scale).float(), indices.to(torch.int32)


@implements("atb::npu_fused_add_topk_div")
def npu_fused_add_topk_div(
    x, add_num, *, mapping_num=None, mapping_table=None, activation_type=None, group_num=1,
    group_topk=1, n=1, k=1, is_norm=True, scale=1.0, enable_expert_mapping=False,
):  # fmt: skip
    return _experts(
        x, add_num, mapping_num, mapping_table, activation_type, group_num, group_topk, n, k,
        is_norm, scale, enable_expert_mapping,
    )  # fmt: skip


@implements("atb::npu_fused_add_topk_div.out", meta=lambda *a, y, indices, **k: (y, indices))
def npu_fused_add_topk_div_out(x, add_num, *, y, indices, **options):
    weights, chosen = npu_fused_add_topk_div(x, add_num, **options)
    return y.copy_(weights), indices.copy_(chosen)


def _loaded(key_cache, value_cache, table, context_lens, seq_starts, cumsum):
    name = "npu_paged_cache_load"
    lengths = context_lens.flatten().tolist()
    if cumsum:
        ends = lengths[1:] if lengths[:1] == [0] and len(lengths) > table.size(0) else lengths
        lengths = [b - a for a, b in zip([0, *ends], ends)]
    require(
        len(lengths) == table.size(0) and all(n >= 0 for n in lengths),
        f"{name}: context_lens speaks of {len(lengths)} sequences, block_table of {table.size(0)}.",
    )
    starts = [0] * len(lengths) if seq_starts is None else seq_starts.flatten().tolist()
    found = []
    for cache in (key_cache, value_cache):
        rows = [_paged(cache, table[b], n, name, starts[b]) for b, n in enumerate(lengths)]
        found.append(torch.cat(rows) if rows else cache.new_empty((0, *cache.shape[2:])))
    return tuple(found)


@implements("atb::npu_paged_cache_load")
def npu_paged_cache_load(
    key_cache, value_cache, block_table, context_lens, *, seq_starts=None, cumsum=False
):
    return _loaded(key_cache, value_cache, block_table, context_lens, seq_starts, cumsum)


@implements("atb::npu_paged_cache_load.out", meta=lambda *a, key, value, **k: (key, value))
def npu_paged_cache_load_out(
    key_cache, value_cache, block_table, context_lens, *, key, value, seq_starts=None, cumsum=False
):
    found = _loaded(key_cache, value_cache, block_table, context_lens, seq_starts, cumsum)
    return key.copy_(found[0].reshape(key.shape)), value.copy_(found[1].reshape(value.shape))


@implements("atb::_npu_matmul_add_fp32")
def _npu_matmul_add_fp32(x, weight, C):
    name = "_npu_matmul_add_fp32"
    require(
        x.dim() == 2 and weight.dim() == 2 and x.size(0) == weight.size(0),
        f"{name}: x has shape {list(x.shape)} and weight {list(weight.shape)}; allowed: (k, m) and (k, n).",
    )
    require(
        C.dtype in (torch.float32, torch.float64),
        f"{name}: C is {C.dtype}; allowed: torch.float32.",
        "TYPE",
    )
    C.add_((wide(x).t() @ wide(weight)).view_as(C))


@implements("atb::_npu_quantize_per_tensor")
def _npu_quantize_per_tensor(x, scale, zero_point, y):
    require(
        y.dtype == torch.int8,
        f"_npu_quantize_per_tensor: y is {y.dtype}; allowed: torch.int8.",
        "TYPE",
    )
    value = torch.round(wide(x) / wide(scale) + wide(zero_point))
    y.copy_(value.clamp(-128, 127).to(torch.int8))


def _turned(x, cos, sin, head_size: int, neox: bool):
    heads = wide(x).reshape(cos.size(0), -1, head_size)
    size = 2 * cos.size(-1)
    part, rest = heads[..., :size], heads[..., size:]
    cos, sin = cos[:, None], sin[:, None]
    a, b = part.chunk(2, -1) if neox else (part[..., ::2], part[..., 1::2])
    new = a * cos - b * sin, b * cos + a * sin
    turned = torch.cat(new, -1) if neox else torch.stack(new, -1).flatten(-2)
    return torch.cat((turned, rest), -1).reshape(x.shape).to(x.dtype)


@implements("atb::_npu_rotary_embedding")
def _npu_rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox_style):
    name = "_npu_rotary_embedding"
    require(
        cos_sin_cache.dim() == 2 and 0 < cos_sin_cache.size(1) <= head_size,
        f"{name}: cos_sin_cache has shape {list(cos_sin_cache.shape)}; allowed: (positions, at most {head_size}).",
    )
    rows = wide(cos_sin_cache).index_select(0, positions.flatten().to(torch.int64))
    cos, sin = rows.chunk(2, -1)
    for x in (query, key):
        x.copy_(_turned(x, cos, sin, head_size, is_neox_style))
