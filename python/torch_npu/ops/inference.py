# SPDX-License-Identifier: Apache-2.0
"""Attention for inference: whole, padded, packed or paged key and value."""

import torch

from torch_npu.ops import _attend as core
from torch_npu.ops import implements
from torch_npu.ops._check import floating, refuse_given, require, same_dtype, wide

# Layout of the inputs and, where it differs, of the output.
_PAIRS = {
    "BSH": "BSH", "BSND": "BSND", "BNSD": "BNSD", "TND": "TND", "NTD": "NTD", "NSD": "NSD",
    "BNSD_BSND": "BSND", "BSH_BNSD": "BNSD", "BSND_BNSD": "BNSD", "BSH_NBSD": "NBSD",
    "BSND_NBSD": "NBSD", "BNSD_NBSD": "NBSD", "TND_NTD": "NTD", "NTD_TND": "TND",
}  # fmt: skip


class _Infer:
    def __init__(
        self, name, q, k, v, *, heads, kv_heads, scale, layout, mode=0, pre=core.FAR, next_=core.FAR,
        pse=None, mask=None, qlens=None, kvlens=None, block_table=None, block_size=0, sink=None,
        q_rope=None, k_rope=None,
    ):  # fmt: skip
        require(heads > 0, f"{name}: num_heads should be greater than 0, but got {heads}.", "VALUE")
        require(
            layout in _PAIRS,
            f"{name}: layout only support {', '.join(_PAIRS)}, but got {layout}.",
            "VALUE",
        )
        self.name, self.heads, self.kv_heads = name, heads, kv_heads or heads
        self.layout, self.out_layout = layout.split("_")[0], _PAIRS[layout]
        require(mode in range(5), f"{name}: sparse_mode is {mode}; allowed: 0 to 4.", "VALUE")
        rank = 4 if self.layout in ("BSND", "BNSD") else 3
        require(
            q.dim() == rank,
            f"{name}: query's dim should be consistent with that of Layout {layout} ({rank}), but got "
            f"{q.dim()}.",
            "VALUE",
        )
        require(
            heads % self.kv_heads == 0,
            f"{name}: num_heads ({heads}) must be a multiple of num_key_value_heads ({self.kv_heads}).",
        )
        floating(name, query=q)
        same_dtype(name, query=q, key=k, value=v)
        self.scale, self.mode, self.pre, self.next = scale, mode, pre, next_
        self.pse, self.mask, self.sink = pse, mask, sink
        self.table, self.block_size, self.dtype = block_table, block_size, q.dtype
        self.kvlens = kvlens
        self.queries = self._split(q, heads, qlens, "actual_seq_lengths", q_rope)
        self._settle_mode(q_rope is not None)
        if block_table is not None:
            require(
                kvlens is not None,
                f"{name}: actual_seq_lengths_kv must be given with block_table.",
            )
            kvlens = self._each(kvlens, "actual_seq_lengths_kv")
            pages = [self._pages(x) for x in (k, v)]
            rope = None if k_rope is None else self._pages(k_rope)
            self.keys = [self._page(pages[0], i, n) for i, n in enumerate(kvlens)]
            self.values = [self._page(pages[1], i, n) for i, n in enumerate(kvlens)]
            if rope is not None:
                parts = [self._page(rope, i, n) for i, n in enumerate(kvlens)]
                self.keys = [torch.cat(p, -1) for p in zip(self.keys, parts)]
        else:
            self.keys = self._split(k, self.kv_heads, kvlens, "actual_seq_lengths_kv", k_rope)
            self.values = self._split(v, self.kv_heads, kvlens, "actual_seq_lengths_kv")

    def _settle_mode(self, has_rope: bool) -> None:
        """One row of query attends to all keys: bands do not count."""
        if self.layout not in ("TND", "NTD") and self.longest == 1 and not has_rope:
            if self.mode in (2, 3, 4):
                self.mask = None
            self.mode, self.pre, self.next = 0, core.FAR, core.FAR
        elif self.mask is not None and self.mode in (2, 3, 4):
            core.check_compressed(self.name, self.mask, self.mode)

    def _each(self, lengths, argument):
        """A length for each batch; one value serves all."""
        count = len(self.queries)
        lengths = list(lengths)
        require(
            len(lengths) in (1, count),
            f"{self.name}: {argument} has {len(lengths)} values for {count} batches; give 1 or {count}.",
        )
        return lengths * count if len(lengths) == 1 else lengths

    def _split(self, x, heads, lengths, argument, rope=None):
        """(N, S, D) for each batch or sequence, cut to its length."""
        if rope is not None:
            flat = self.layout == "BSH"
            parts = [y.unflatten(-1, (heads, -1)) if flat else y for y in (x, rope)]
            x = torch.cat(parts, -1)
            x = x.flatten(-2) if flat else x
        if self.layout in ("TND", "NTD"):
            require(
                lengths is not None,
                f"{self.name}: {argument} must be given with layout {self.layout}.",
            )
            x = x.transpose(0, 1) if self.layout == "TND" else x
            steps = core.lengths_of(lengths, self.name, argument)
            self._check_length(argument, sum(steps), x.size(1))
            ends, at = [], 0
            for step in steps:
                ends.append(x[:, at : at + step])
                at += step
            return ends
        batches = (
            [x] if self.layout == "NSD" else list(core.to_bnsd(x, self.layout, heads).unbind(0))
        )
        if argument == "actual_seq_lengths":
            self.queries, self.longest = batches, batches[0].size(1) if batches else 0
        if lengths is None:
            return batches
        each = self._each(lengths, argument)
        for n in each:
            self._check_length(argument, n, batches[0].size(1) if batches else 0)
        return [b[:, :n] for b, n in zip(batches, each)]

    def _check_length(self, argument, length, rows) -> None:
        require(
            0 <= length <= rows,
            f"{self.name}: {argument} holds {length}, but there are {rows} rows.",
            "VALUE",
        )

    def _pages(self, cache):
        """(blocks, block_size, N, D)"""
        if cache.dim() == 3:
            return cache.unflatten(-1, (self.kv_heads, -1))
        if cache.dim() == 4:
            return cache.transpose(1, 2)
        require(
            cache.dim() == 5,
            f"{self.name}: a paged cache has 3, 4 or 5 dimensions, but got {cache.dim()}.",
        )
        return cache.permute(0, 3, 1, 2, 4).flatten(3)

    def _page(self, pages, batch, length):
        size = pages.size(1)
        count = (length + size - 1) // size
        require(
            length >= 0,
            f"{self.name}: actual_seq_lengths_kv holds {length}; it must not be negative.",
            "VALUE",
        )
        require(
            count <= self.table.size(1),
            f"{self.name}: length {length} of batch {batch} needs {count} blocks of {size}, but "
            f"block_table has {self.table.size(1)}.",
        )
        rows = pages.index_select(0, self.table[batch, :count].to(torch.int64))
        return rows.flatten(0, 1)[:length].transpose(0, 1)

    def _mask(self, batch, sq, skv):
        mask, mode = self.mask, self.mode
        if mask is None:
            return None
        if mode in (0, 1):
            mask = self._mask_of(mask, batch, sq)[..., :sq, :skv]
        return core.dropped(mask, mode, sq, skv, self.pre, self.next, None)

    def _mask_of(self, mask, batch, sq):
        """(Sq, Skv) of a batch."""
        if mask.dim() == 4:
            return mask[batch if mask.size(0) > 1 else 0, 0]
        if mask.dim() == 3:
            return mask[batch if mask.size(0) > 1 else 0]
        if sq == 1 and mask.size(0) == len(self.queries) and len(self.queries) > 1:
            return mask[batch : batch + 1]
        return mask

    def run(self, quant_scale=None, quant_offset=None):
        """(out, lse (B, N, Sq, 1) or (T, N, 1))"""
        outs, lses = [], []
        for i, (q, k, v) in enumerate(zip(self.queries, self.keys, self.values)):
            sq, skv = q.size(1), k.size(1)
            pse = None
            if self.pse is not None:
                pse = self.pse[i if self.pse.size(0) > 1 else 0][None, ..., :sq, :skv]
            out, m, total = core.attend(
                q[None], k[None], v[None], scale=self.scale, pse=pse, pse_type=0,
                drop=self._mask(i, sq, skv), sink=self.sink,
            )  # fmt: skip
            lse = (m + torch.log(total)).float()
            if self.layout not in ("TND", "NTD"):
                pad = (0, 0, 0, self.longest - sq)
                out, lse = (torch.nn.functional.pad(x, pad) for x in (out, lse))
            outs.append(out[0])
            lses.append(lse[0])
        out, lse = self._join(outs), self._join_lse(lses)
        if quant_scale is not None:
            out = wide(out) * wide(quant_scale)
            out = out if quant_offset is None else out + wide(quant_offset)
            return torch.clamp(torch.round(out), -128, 127).to(torch.int8), lse
        return out.to(self.dtype), lse

    def _join(self, outs):
        if self.layout in ("TND", "NTD"):
            out = torch.cat(outs, 1)
            return (out.transpose(0, 1) if self.out_layout == "TND" else out).contiguous()
        if self.layout == "NSD":
            return outs[0]
        return core.from_bnsd(torch.stack(outs), self.out_layout).contiguous()

    def _join_lse(self, lses):
        if self.layout in ("TND", "NTD"):
            return torch.cat(lses, 1).transpose(0, 1).contiguous()
        return torch.stack(lses)


@implements("npu_fused_infer_attention_score")
def npu_fused_infer_attention_score(
    query, key, value, *, pse_shift=None, atten_mask=None, actual_seq_lengths=None,
    actual_seq_lengths_kv=None, dequant_scale1=None, quant_scale1=None, dequant_scale2=None,
    quant_scale2=None, quant_offset2=None, antiquant_scale=None, antiquant_offset=None,
    key_antiquant_scale=None, key_antiquant_offset=None, value_antiquant_scale=None,
    value_antiquant_offset=None, block_table=None, query_padding_size=None, kv_padding_size=None,
    key_shared_prefix=None, value_shared_prefix=None, actual_shared_prefix_len=None,
    query_rope=None, key_rope=None, key_rope_antiquant_scale=None, num_heads=1, scale=1.0,
    pre_tokens=core.FAR, next_tokens=core.FAR, input_layout="BSH", num_key_value_heads=0,
    sparse_mode=0, inner_precise=0, block_size=0, antiquant_mode=0, key_antiquant_mode=0,
    value_antiquant_mode=0, softmax_lse_flag=False,
):  # fmt: skip
    name = "npu_fused_infer_attention_score"
    refuse_given(
        name, dequant_scale1=dequant_scale1, quant_scale1=quant_scale1, dequant_scale2=dequant_scale2,
        antiquant_scale=antiquant_scale, antiquant_offset=antiquant_offset,
        key_antiquant_scale=key_antiquant_scale, key_antiquant_offset=key_antiquant_offset,
        value_antiquant_scale=value_antiquant_scale, value_antiquant_offset=value_antiquant_offset,
        query_padding_size=query_padding_size, kv_padding_size=kv_padding_size,
        key_shared_prefix=key_shared_prefix, value_shared_prefix=value_shared_prefix,
        actual_shared_prefix_len=actual_shared_prefix_len,
        key_rope_antiquant_scale=key_rope_antiquant_scale,
    )  # fmt: skip
    call = _Infer(
        name, query, key, value, heads=num_heads, kv_heads=num_key_value_heads, scale=scale,
        layout=input_layout, mode=sparse_mode, pre=pre_tokens, next_=next_tokens, pse=pse_shift,
        mask=atten_mask, qlens=actual_seq_lengths, kvlens=actual_seq_lengths_kv,
        block_table=block_table, block_size=block_size, q_rope=query_rope, k_rope=key_rope,
    )  # fmt: skip
    out, lse = call.run(quant_scale2, quant_offset2)
    return out, lse if softmax_lse_flag else lse.new_empty(0)


@implements("npu_fused_infer_attention_score_v2")
def npu_fused_infer_attention_score_v2(
    query, key, value, *, query_rope=None, key_rope=None, pse_shift=None, atten_mask=None,
    actual_seq_qlen=None, actual_seq_kvlen=None, block_table=None, dequant_scale_query=None,
    dequant_scale_key=None, dequant_offset_key=None, dequant_scale_value=None,
    dequant_offset_value=None, dequant_scale_key_rope=None, quant_scale_out=None,
    quant_offset_out=None, quant_scale_p=None, learnable_sink=None, num_query_heads=1,
    num_key_value_heads=0, softmax_scale=1.0, pre_tokens=core.FAR, next_tokens=core.FAR,
    input_layout="BSH", sparse_mode=0, block_size=0, query_quant_mode=0, key_quant_mode=0,
    value_quant_mode=0, inner_precise=0, return_softmax_lse=False, **dtypes,
):  # fmt: skip
    name = "npu_fused_infer_attention_score_v2"
    refuse_given(
        name, dequant_scale_query=dequant_scale_query, dequant_scale_key=dequant_scale_key,
        dequant_offset_key=dequant_offset_key, dequant_scale_value=dequant_scale_value,
        dequant_offset_value=dequant_offset_value, dequant_scale_key_rope=dequant_scale_key_rope,
        quant_scale_p=quant_scale_p, **dtypes,
    )  # fmt: skip
    call = _Infer(
        name, query, key, value, heads=num_query_heads, kv_heads=num_key_value_heads,
        scale=softmax_scale, layout=input_layout, mode=sparse_mode, pre=pre_tokens, next_=next_tokens,
        pse=pse_shift, mask=atten_mask, qlens=actual_seq_qlen, kvlens=actual_seq_kvlen,
        block_table=block_table, block_size=block_size, q_rope=query_rope, k_rope=key_rope,
        sink=learnable_sink,
    )  # fmt: skip
    out, lse = call.run(quant_scale_out, quant_offset_out)
    return out, lse if return_softmax_lse else lse.new_empty(0)


@implements("npu_prompt_flash_attention")
def npu_prompt_flash_attention(
    query, key, value, *, padding_mask=None, atten_mask=None, pse_shift=None,
    actual_seq_lengths=None, deq_scale1=None, quant_scale1=None, deq_scale2=None, quant_scale2=None,
    quant_offset2=None, num_heads=1, scale_value=1.0, pre_tokens=core.FAR, next_tokens=0,
    input_layout="BSH", num_key_value_heads=0, actual_seq_lengths_kv=None, sparse_mode=0,
):  # fmt: skip
    name = "npu_prompt_flash_attention"
    refuse_given(name, deq_scale1=deq_scale1, quant_scale1=quant_scale1, deq_scale2=deq_scale2)
    mode = sparse_mode - 10 if 10 <= sparse_mode <= 14 else sparse_mode
    call = _Infer(
        name, query, key, value, heads=num_heads, kv_heads=num_key_value_heads, scale=scale_value,
        layout=input_layout, mode=mode, pre=pre_tokens, next_=next_tokens, pse=pse_shift,
        mask=atten_mask, qlens=actual_seq_lengths, kvlens=actual_seq_lengths_kv,
    )  # fmt: skip
    return call.run(quant_scale2, quant_offset2)[0]


@implements("npu_incre_flash_attention")
def npu_incre_flash_attention(
    query, key, value, *, padding_mask=None, atten_mask=None, pse_shift=None,
    actual_seq_lengths=None, antiquant_scale=None, antiquant_offset=None, block_table=None,
    dequant_scale1=None, quant_scale1=None, dequant_scale2=None, quant_scale2=None,
    quant_offset2=None, kv_padding_size=None, num_heads=1, scale_value=1.0, input_layout="BSH",
    num_key_value_heads=0, block_size=0, inner_precise=1,
):  # fmt: skip
    name = "npu_incre_flash_attention"
    refuse_given(
        name, antiquant_scale=antiquant_scale, antiquant_offset=antiquant_offset,
        dequant_scale1=dequant_scale1, quant_scale1=quant_scale1, dequant_scale2=dequant_scale2,
        kv_padding_size=kv_padding_size,
    )  # fmt: skip
    call = _Infer(
        name, query, key, value, heads=num_heads, kv_heads=num_key_value_heads, scale=scale_value,
        layout=input_layout, pse=pse_shift, mask=atten_mask, kvlens=actual_seq_lengths,
        block_table=block_table, block_size=block_size,
    )  # fmt: skip
    return call.run(quant_scale2, quant_offset2)[0]


def _foreseen(name, query, value, layout, heads, kv_heads, quantised, wants_lse):
    """Empty (out, lse) of the sizes that the operator gives."""
    require(heads > 0, f"{name}: num_heads should be greater than 0, but got {heads}.", "VALUE")
    require(
        layout in _PAIRS,
        f"{name}: layout only support {', '.join(_PAIRS)}, but got {layout}.",
        "VALUE",
    )
    first, last = layout.split("_")[0], _PAIRS[layout]
    sizes = {
        "N": heads,
        "B": 1,
        **{letter: n for letter, n in zip(first, query.shape) if letter != "H"},
    }
    rows = "T" if first in ("TND", "NTD") else "S"
    if value.dim() == 5:
        sizes["D"] = value.size(2) * value.size(4)
    elif value.dim() == 4 or (value.dim() == 3 and first not in ("BSH", "BSND", "BNSD")):
        sizes["D"] = value.size(-1)
    else:
        sizes["D"] = value.size(-1) // (kv_heads or heads)
    sizes["H"] = heads * sizes["D"]
    lse = (sizes["T"], heads, 1) if rows == "T" else (sizes["B"], heads, sizes["S"], 1)
    dtype = torch.float16 if query.dtype == torch.int8 else query.dtype
    return (
        query.new_empty(
            [sizes[letter] for letter in last], dtype=torch.int8 if quantised else dtype
        ),
        query.new_empty(lse if wants_lse else (0,), dtype=torch.float32),
    )


@implements("_npu_fused_infer_attention_score_infer_output")
def _npu_fused_infer_attention_score_infer_output(
    query, value, *, input_layout="BSH", quant_scale2=None, block_table=None, num_heads=1,
    num_key_value_heads=0, softmax_lse_flag=False, query_rope=None,
):  # fmt: skip
    return _foreseen(
        "_npu_fused_infer_attention_score_infer_output", query, value, input_layout, num_heads,
        num_key_value_heads, quant_scale2 is not None, softmax_lse_flag,
    )  # fmt: skip


@implements("_npu_fused_infer_attention_score_v2_infer_output")
def _npu_fused_infer_attention_score_v2_infer_output(
    query, value, *, query_dtype=None, value_dtype=None, input_layout="BSH", quant_scale_out=None,
    block_table=None, num_query_heads=1, num_key_value_heads=0, return_softmax_lse=False,
    query_rope=None, out_dtype=None,
):  # fmt: skip
    name = "_npu_fused_infer_attention_score_v2_infer_output"
    refuse_given(name, query_dtype=query_dtype, value_dtype=value_dtype, out_dtype=out_dtype)
    return _foreseen(
        name, query, value, input_layout, num_query_heads, num_key_value_heads,
        quant_scale_out is not None, return_softmax_lse,
    )  # fmt: skip


def _nothing(*args, **kwargs):
    return None


@implements("atb::_npu_paged_attention", meta=_nothing)
def _npu_paged_attention(
    query, key_cache, value_cache, num_kv_heads, num_heads, scale_value, block_table, context_lens,
    out, *, workspace=None,
):  # fmt: skip
    call = _Infer(
        "_npu_paged_attention", query[:, None], key_cache.transpose(1, 2), value_cache.transpose(1, 2),
        heads=num_heads, kv_heads=num_kv_heads, scale=scale_value, layout="BSND",
        kvlens=context_lens.tolist(), block_table=block_table,
    )  # fmt: skip
    out.copy_(call.run()[0][:, 0].reshape(out.shape))


@implements("atb::_npu_flash_attention_unpad", meta=_nothing)
def _npu_flash_attention_unpad(
    query, key, value, seq_len, scale_value, num_heads, num_kv_heads, out
):
    ends = torch.cumsum(seq_len.cpu(), 0).tolist()
    split = [x.unflatten(-1, (n, -1)) if x.dim() == 2 else x
             for x, n in ((query, num_heads), (key, num_kv_heads), (value, num_kv_heads))]  # fmt: skip
    call = _Infer(
        "_npu_flash_attention_unpad", *split, heads=num_heads, kv_heads=num_kv_heads,
        scale=scale_value, layout="TND", qlens=ends, kvlens=ends,
    )  # fmt: skip
    out.copy_(call.run()[0].reshape(out.shape))
