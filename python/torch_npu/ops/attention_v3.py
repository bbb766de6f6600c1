# SPDX-License-Identifier: Apache-2.0
"""npu_fusion_attention_v3: lengths, seed and offset are tensors, on the CPU."""

import torch

from torch_npu.ops import _attend as core
from torch_npu.ops import implements
from torch_npu.ops._check import require


def _numbers(x):
    return None if x is None else x.tolist()


def _number(x) -> int:
    return 0 if x is None else int(x.item())


def _word(value: int):
    return torch.tensor([value], dtype=torch.int64)


@implements("npu_fusion_attention_v3")
def npu_fusion_attention_v3(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None,
    scale=1.0, keep_prob=1.0, pre_tockens=core.FAR, next_tockens=core.FAR, inner_precise=0,
    prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True,
    sync=False, softmax_layout="", sink=None,
):  # fmt: skip
    """(out, softmax_max, softmax_sum, empty, seed, offset)"""
    out, m, total, empty, seed, offset, _ = torch.ops.npu.npu_fusion_attention(
        query, key, value, head_num, input_layout, pse, padding_mask, atten_mask, scale, keep_prob,
        pre_tockens, next_tockens, inner_precise, prefix, _numbers(actual_seq_qlen),
        _numbers(actual_seq_kvlen), sparse_mode, gen_mask_parallel, sync, softmax_layout, sink,
    )  # fmt: skip
    return out, m, total, empty, _word(seed), _word(offset)


@implements("npu_fusion_attention_grad_v3")
def npu_fusion_attention_grad_v3(
    query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None,
    softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, scale_value=1.0,
    keep_prob=1.0, pre_tockens=core.FAR, next_tockens=core.FAR, inner_precise=0, seed=None,
    offset=None, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0,
    gen_mask_parallel=True, sync=False, softmax_layout="", sink=None,
):  # fmt: skip
    return torch.ops.npu.npu_fusion_attention_grad(
        query, key, value, dy, head_num, input_layout, pse=pse, padding_mask=padding_mask,
        atten_mask=atten_mask, softmax_max=softmax_max, softmax_sum=softmax_sum,
        softmax_in=softmax_in, attention_in=attention_in, scale_value=scale_value,
        keep_prob=keep_prob, pre_tockens=pre_tockens, next_tockens=next_tockens,
        inner_precise=inner_precise, seed=_number(seed), offset=_number(offset), prefix=prefix,
        actual_seq_qlen=_numbers(actual_seq_qlen), actual_seq_kvlen=_numbers(actual_seq_kvlen),
        sparse_mode=sparse_mode, softmax_layout=softmax_layout, sink=sink,
    )  # fmt: skip


_ROWS = {"BSH": (0, 1), "SBH": (1, 0), "BSND": (0, 1), "BNSD": (0, 2), "TND": ()}


def _heads_of(query, head_num: int, layout: str):
    """(B, N, Sq) of the statistics."""
    batch, rows = _ROWS[layout]
    return query.size(batch), head_num, query.size(rows)


def _last_size(query, key, value, head_num: int, layout: str) -> int:
    """Of the output: a head is as wide as one of value."""
    if layout not in ("BSH", "SBH"):
        return value.size(-1)
    heads = key.size(-1) // (query.size(-1) // head_num)
    return head_num * (value.size(-1) // heads)


@implements("_npu_fusion_attention_v3_infer_output")
def _npu_fusion_attention_v3_infer_output(query, key, value, head_num, input_layout):
    """Empty (out, softmax_max, softmax_sum)"""
    name, layout = "_npu_fusion_attention_v3_infer_output", input_layout.upper()
    require(
        layout in _ROWS,
        f"{name}: The input_layout should be BSH/SBH/BNSD/BSND/TND(case-insensitive), but got {input_layout}",
    )
    require(head_num > 0, f"{name}: head_num must > 0, but got {head_num}")
    statistics = (
        (query.size(0), head_num, 8)
        if layout == "TND"
        else (*_heads_of(query, head_num, layout), 8)
    )
    width = _last_size(query, key, value, head_num, layout)
    return (
        query.new_empty((*query.shape[:-1], width)),
        query.new_empty(statistics, dtype=torch.float32),
        query.new_empty(statistics, dtype=torch.float32),
    )


@implements("_npu_fusion_attention_grad_v3_infer_output")
def _npu_fusion_attention_grad_v3_infer_output(query, key, value, pse=None, sink=None):
    """Empty (dq, dk, dv, dpse, dsink)"""
    return (
        torch.empty_like(query),
        torch.empty_like(key),
        torch.empty_like(value),
        query.new_empty(0) if pse is None else torch.empty_like(pse),
        query.new_empty(0, dtype=torch.float32) if sink is None else torch.empty_like(sink),
    )


@implements(
    "_npu_fusion_attention_v3_get_max_workspace",
    "_npu_fusion_attention_grad_v3_get_max_workspace",
    "_npu_fused_infer_attention_score_get_max_workspace",
    "_npu_fused_infer_attention_score_v2_get_max_workspace",
)
def _no_workspace(query, *args, **kwargs):
    """No workspace is needed here, so the result is empty."""
    return query.new_empty(0, dtype=torch.uint8)
