# SPDX-License-Identifier: Apache-2.0
"""Operators of Ascend's transformer library that write to out: attention whose lengths are numbers,
attention over quantised caches and over the caches of MLA, the quantised norm."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._attend import share_heads
from torch_npu.ops._check import refuse_given, require, unsupported, wide
from torch_npu.ops.atb import _causal, _heads, _nothing, _numbers, _one, _paged, _write

# The last number of MaskType that each operator knows, and what the numbers mean.
_MASKS = {
    0: "none", 1: "norm", 2: "alibi", 3: "norm_compress", 4: "alibi_compress",
    5: "alibi_compress_sqrt", 6: "alibi_compress_left_align",
}  # fmt: skip


def _mask_type(name: str, value: int, allowed: tuple[int, ...]) -> str:
    listed = ", ".join(f"{n} ({_MASKS[n]})" for n in allowed)
    if value not in allowed and value in _MASKS:
        unsupported(
            f"{name}: mask_type {value} ({_MASKS[value]}) is not supported; allowed: {listed}."
        )
    require(value in allowed, f"{name}: mask_type is {value}; allowed: {listed}.", "VALUE")
    return _MASKS[value]


def _count(name: str, heads: int, kv_heads: int) -> int:
    """Heads of keys; 0 means those of the query."""
    kv_heads = kv_heads or heads
    require(
        heads > 0 and kv_heads > 0 and heads % kv_heads == 0,
        f"{name}: num_heads is {heads} and num_kv_heads {kv_heads}; num_heads must be a multiple.",
        "VALUE",
    )
    return kv_heads


def _cache(cache, heads: int, name: str, what: str):
    """(blocks, block_size, heads, size) of a cache that may come with heads and size in one."""
    if cache.dim() == 3 and cache.size(2) % heads == 0:
        return cache.unflatten(-1, (heads, -1))
    require(
        cache.dim() == 4 and cache.size(2) == heads,
        f"{name}: {what} has shape {list(cache.shape)}; allowed: (blocks, block_size, {heads}, size).",
    )
    return cache


def _slopes(name: str, slopes, heads: int):
    require(
        slopes is not None and slopes.numel() == heads,
        f"{name}: slopes must have a number for each of the {heads} heads with this mask_type.",
    )
    return wide(slopes).reshape(heads, 1, 1)


def _distance_mask(slopes, queries: int, keys: int, root: bool):
    """What the compressed alibi mask, distances of keys before a query, means for these tokens."""
    last = torch.arange(keys - queries, keys, device=slopes.device)[:, None]
    distance = (last - torch.arange(keys, device=slopes.device)).clamp(min=0).to(slopes.dtype)
    return slopes * (distance.sqrt() if root else distance)


def _of_sequence(mask, b: int, queries: int, keys: int, name: str):
    """The rows of a mask that is added to the scores: (queries, keys), or one for each head."""
    part = mask[b if mask.size(0) > 1 else 0] if mask.dim() == 4 else mask
    part = part[..., :queries, :keys]
    require(
        part.size(-2) in (1, queries) and part.size(-1) == keys,
        f"{name}: mask has shape {list(mask.shape)}, and a sequence has {queries} queries and {keys} keys.",
    )
    return wide(part).reshape(1, -1, *part.shape[-2:])


@implements("atb::_npu_flash_attention_v2.out", meta=lambda *a, out, **k: out)
def _npu_flash_attention_v2(
    query, key, value, seq_len, *, mask=None, slopes=None, kernel_type=0, mask_type=2,
    scale_value=1.0, num_heads=0, num_kv_heads=0, out,
):  # fmt: skip
    name = "_npu_flash_attention_v2"
    kind = _mask_type(name, mask_type, (0, 1, 2, 4, 5))
    kv_heads = _count(name, num_heads, num_kv_heads)
    q = _heads(query, num_heads, name, "query")
    k, v = (_heads(x, kv_heads, name, what) for x, what in ((key, "key"), (value, "value")))
    parts, start = [], 0
    for b, n in enumerate(_numbers(torch.tensor(seq_len), q.size(0), name, "seq_len")):
        here, added, drop = slice(start, start + n), None, None
        if kind.startswith("alibi_compress"):
            slope = _slopes(name, slopes, num_heads)
            added = _distance_mask(slope, n, n, kind.endswith("sqrt"))[None]
            drop = _causal(n, n, q.device)
        elif kind != "none":
            require(mask is not None, f"{name}: mask_type is {mask_type} ({kind}): give a mask.")
            whole = mask[:, None] if kind == "norm" and mask.dim() == 3 else mask
            added = _of_sequence(whole, b, n, n, name)
        parts.append(_one(q[here], k[here], v[here], scale_value, added, drop)[0])
        start += n
    _write(out, parts, q)
    return out


@implements("atb::_npu_flash_attention_prefix_v2.out", meta=lambda *a, out, **k: out)
def _npu_flash_attention_prefix_v2(
    query, key_cache, value_cache, block_table, mask, seq_len, context_lens, *, slopes=None,
    kernel_type=1, mask_type=3, num_kv_heads=0, num_heads=0, scale_value=1.0, out,
):  # fmt: skip
    name = "_npu_flash_attention_prefix_v2"
    kind = _mask_type(name, mask_type, (3, 4, 5))
    kv_heads = _count(name, num_heads, num_kv_heads)
    q = _heads(query, num_heads, name, "query")
    caches = [
        _cache(x, kv_heads, name, what)
        for x, what in ((key_cache, "key_cache"), (value_cache, "value_cache"))
    ]
    slope = None if kind == "norm_compress" else _slopes(name, slopes, num_heads)
    parts, start = [], 0
    lengths = _numbers(torch.tensor(seq_len), q.size(0), name, "seq_len")
    _one_length_each(name, block_table, context_lens, len(lengths))
    for b, (n, total) in enumerate(zip(lengths, context_lens)):
        require(
            n <= total,
            f"{name}: a sequence has {n} query tokens and only {total} tokens in the cache.",
        )
        keys, values = (_paged(c, block_table[b], total, name) for c in caches)
        root = kind.endswith("sqrt")
        added = None if slope is None else _distance_mask(slope, n, total, root)[None]
        here, drop = slice(start, start + n), _causal(n, total, q.device)
        parts.append(_one(q[here], keys, values, scale_value, added, drop)[0])
        start += n
    _write(out, parts, q)
    return out


def _one_length_each(name: str, table, lengths, sequences: int) -> None:
    require(
        len(lengths) == sequences <= table.size(0),
        f"{name}: {sequences} sequences, {len(lengths)} context_lens and {table.size(0)} rows of the block table.",
    )


def _nothing_before(q, size: int):
    """The result of a sequence without keys."""
    return wide(q).new_zeros((1, q.size(1), size))


@implements("atb::_npu_paged_attention_v2.out", meta=lambda *a, out, **k: out)
def _npu_paged_attention_v2(
    query, key_cache, block_table, context_lens, *, value_cache=None, mask=None, num_kv_heads=0,
    num_heads=0, scale_value=1.0, mask_type=0, workspace=None, out,
):  # fmt: skip
    name = "_npu_paged_attention_v2"
    kind = _mask_type(name, mask_type, (0, 2))
    kv_heads = _count(name, num_heads, num_kv_heads)
    q = _heads(query, num_heads, name, "query")
    require(value_cache is not None, f"{name}: value_cache must be given.")
    require(kind == "none" or mask is not None, f"{name}: mask_type is 2 (alibi): give a mask.")
    caches = [
        _cache(x, kv_heads, name, what)
        for x, what in ((key_cache, "key_cache"), (value_cache, "value_cache"))
    ]
    _one_length_each(name, block_table, context_lens, q.size(0))
    parts = []
    for b, total in enumerate(context_lens):
        if total == 0:
            parts.append(_nothing_before(q, caches[1].size(-1)))
            continue
        keys, values = (_paged(c, block_table[b], total, name) for c in caches)
        added = None if kind == "none" else _of_sequence(mask, b, 1, total, name)
        parts.append(_one(q[b : b + 1], keys, values, scale_value, added)[0])
    _write(out, parts, q)
    return out


@implements("atb::_npu_paged_attention_get_workspace")
def _npu_paged_attention_get_workspace(
    query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, block_table, context_lens,
    out,
):  # fmt: skip
    """Scratch memory for _npu_paged_attention, which takes its own here."""
    return query.new_empty((0,), dtype=torch.uint8)


# ---- quantised caches ----


def _dequantised(cache, scale, heads: int, name: str, what: str):
    """int8 numbers times a scale for each channel of each head."""
    require(
        scale.numel() == heads * cache.size(-1),
        f"{name}: {what} has {scale.numel()} numbers; allowed: {heads * cache.size(-1)}, one for each channel.",
    )
    return wide(cache) * wide(scale).reshape(heads, -1)


def _all_int8(q, keys, values, scale: float, k_descale, v_descale):
    """Scores of int8 products; weights are rounded to int8 by their row's largest one."""
    heads = q.size(1)
    q, k, v = (wide(x).transpose(0, 1)[None] for x in (q, keys, values))
    scores = q @ share_heads(k, heads).transpose(-1, -2)
    scores = scores * wide(k_descale).reshape(heads, 1, 1) * scale
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))  # the largest is 1
    rounded = torch.round(weights * 127)
    out = rounded @ share_heads(v, heads) * (wide(v_descale).reshape(heads, 1, 1) / 127)
    return (out / weights.sum(-1, keepdim=True))[0].transpose(0, 1)


@implements("atb::_npu_paged_attention_quant", meta=_nothing)
def _npu_paged_attention_quant(
    query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, block_table, context_lens,
    quant_type, outdata_type, k_descale, v_descale, out,
):  # fmt: skip
    name = "_npu_paged_attention_quant"
    if quant_type == 2:
        unsupported(
            f"{name}: quant_type 2 (weights with a given scale) is not supported; allowed: 1, 3."
        )
    require(
        quant_type in (1, 3),
        f"{name}: quant_type is {quant_type}; allowed: 1 (keys and values are dequantised), 3 (int8 products).",
        "VALUE",
    )
    kinds = {1: torch.float16, 27: torch.bfloat16}  # ACL's numbers
    require(
        kinds.get(outdata_type, out.dtype) == out.dtype,
        f"{name}: outdata_type is {outdata_type} ({kinds.get(outdata_type)}), and out is {out.dtype}.",
        "TYPE",
    )
    kv_heads = _count(name, num_heads, num_kv_heads)
    q = _heads(query, num_heads, name, "query")
    caches = [
        _cache(x, kv_heads, name, what)
        for x, what in ((key_cache, "key_cache"), (value_cache, "value_cache"))
    ]
    for x, what in ((k_descale, "k_descale"), (v_descale, "v_descale")):
        require(
            quant_type == 1 or x.numel() == num_heads,
            f"{name}: {what} has {x.numel()} numbers; allowed: {num_heads}, one for each head.",
        )
    lengths = context_lens.flatten().tolist()
    _one_length_each(name, block_table, lengths, q.size(0))
    parts = []
    for b, total in enumerate(lengths):
        if total == 0:
            parts.append(_nothing_before(q, caches[1].size(-1)))
            continue
        keys, values = (_paged(c, block_table[b], total, name) for c in caches)
        here = q[b : b + 1]
        if quant_type == 1:
            keys = _dequantised(keys, k_descale, kv_heads, name, "k_descale")
            values = _dequantised(values, v_descale, kv_heads, name, "v_descale")
            parts.append(_one(here, keys, values, scale_value)[0])
        else:
            parts.append(_all_int8(here, keys, values, scale_value, k_descale, v_descale))
    _write(out, parts, q)


# ---- MLA ----


def _latent(
    q_nope, q_rope, ctkv, k_rope, block_tables, context_lens, q_headnum, qk_scale, kv_headnum,
    mask=None, qseqlen=None, qk_descale=None, pv_descale=None, mask_type=None, calc_type=None,
    cache_mode=None,
):  # fmt: skip
    name = "npu_multi_head_latent_attention"
    refuse_given(name, qk_descale=qk_descale, pv_descale=pv_descale)
    choices = {
        "mask_type": (mask_type or "undefined", ("undefined", "mask_type_spec", "mask_type_free")),
        "calc_type": (calc_type or "calc_type_undefined", ("calc_type_undefined", "calc_type_spec")),
        "cache_mode": (cache_mode or "krope_ctkv", ("krope_ctkv", "int8_nzcache", "nzcache")),
    }  # fmt: skip
    for key, (value, allowed) in choices.items():
        require(
            value in allowed,
            f"{name}: {key} is {value}; allowed: {', '.join(allowed)}.",
            "VALUE",
        )
    if choices["cache_mode"][0] != "krope_ctkv":
        unsupported(f"{name}: cache_mode {cache_mode} is not supported; allowed: krope_ctkv.")
    masked = choices["mask_type"][0] != "undefined"
    if choices["mask_type"][0] == "mask_type_free":
        unsupported(f"{name}: mask_type mask_type_free is not supported; allowed: mask_type_spec.")
    require(not masked or mask is not None, f"{name}: mask_type is {mask_type}: give a mask.")
    _count(name, q_headnum, kv_headnum)
    q = torch.cat([_heads(x, q_headnum, name, what)
                   for x, what in ((q_nope, "q_nope"), (q_rope, "q_rope"))], -1)  # fmt: skip
    several = choices["calc_type"][0] == "calc_type_spec"
    require(not several or qseqlen is not None, f"{name}: calc_type_spec needs qseqlen.")
    given = list(qseqlen) if several else [1] * len(context_lens)
    lengths = _numbers(
        torch.tensor(given), q.size(0), name, "qseqlen" if several else "context_lens' count"
    )
    _one_length_each(name, block_tables, context_lens, len(lengths))
    latent, rope = (_cache(x, kv_headnum or q_headnum, name, what)
                    for x, what in ((ctkv, "ctkv"), (k_rope, "k_rope")))  # fmt: skip
    parts, start = [], 0
    for b, (n, total) in enumerate(zip(lengths, context_lens)):
        here = slice(start, start + n)
        start += n
        if total == 0:
            parts.append(wide(q).new_zeros((n, q.size(1), latent.size(-1))))
            continue
        values = _paged(latent, block_tables[b], total, name)
        keys = torch.cat([values, _paged(rope, block_tables[b], total, name)], -1)
        added = None
        if masked:
            require(
                mask.dim() == 2 and mask.size(0) == q.size(0) and mask.size(1) >= total,
                f"{name}: mask has shape {list(mask.shape)}; allowed: ({q.size(0)}, {max(context_lens)}), a row for each token.",
            )
            added = wide(mask[here, :total])[None, None]
        drop = _causal(n, total, q.device) if several and not masked else None
        parts.append(_one(q[here], keys, values, qk_scale, added, drop)[0])
    whole = torch.cat(parts) if parts else wide(q_nope).new_zeros(q_nope.shape)
    return whole.reshape(q_nope.shape).to(q_rope.dtype)


@implements(
    "atb::npu_multi_head_latent_attention",
    meta=lambda q_nope, q_rope, *a, **k: torch.empty_like(q_nope, dtype=q_rope.dtype),
)
def npu_multi_head_latent_attention(*args, **options):
    return _latent(*args, **options)


@implements("atb::npu_multi_head_latent_attention.out", meta=lambda *a, output, **k: output)
def npu_multi_head_latent_attention_out(*args, output, **options):
    return output.copy_(_latent(*args, **options))


# ---- the quantised norm ----


@implements("atb::_npu_quant_rms_norm", meta=_nothing)
def _npu_quant_rms_norm(self, gamma, beta, scale, offset, output, eps=1e-5):
    name = "_npu_quant_rms_norm"
    require(
        output.dtype == torch.int8,
        f"{name}: output is {output.dtype}; allowed: torch.int8.",
        "TYPE",
    )
    size = self.size(-1) if self.dim() else 1
    for x, what in ((gamma, "gamma"), (beta, "beta")):
        require(
            x.numel() == size,
            f"{name}: {what} has shape {list(x.shape)}; allowed: ({size}), the last size of x.",
        )
    x = wide(self)
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    y = y * wide(gamma).reshape(-1) + wide(beta).reshape(-1)
    y = torch.round(y / wide(scale) + wide(offset)).clamp(-128, 127)
    output.copy_(y.reshape(output.shape).to(torch.int8))
