# SPDX-License-Identifier: Apache-2.0
"""Attention along the paths i -> j -> k of a graph."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import require, same_dtype, shapes, wide

_DROPPED = -4e9  # added to the scores that atten_mask drops, before they are scaled


def _check(name, query, key_ij, value_ij, key_jk, value_jk, mask) -> None:
    same_dtype(
        name, query_ik=query, key_ij=key_ij, value_ij=value_ij, key_jk=key_jk, value_jk=value_jk
    )
    require(
        query.dim() == 5 and key_ij.dim() == 5,
        f"{name}: query_ik has shape {list(query.shape)} and key_ij {list(key_ij.shape)}; allowed: "
        "(B, H, N, M, D) and (B, H, N, K, D).",
    )
    batch, heads, n, m, size = query.shape
    k = key_ij.size(3)
    first, second = [batch, heads, n, k, size], [batch, heads, k, m, size]
    shapes(
        name, key_ij=(key_ij, first), value_ij=(value_ij, first), key_jk=(key_jk, second),
        value_jk=(value_jk, second), atten_mask=(mask, [batch, 1, n, 1, k]),
    )  # fmt: skip


def _product(x, ij, jk):
    """x[i, k] . (ij[i, j] + jk[j, k]) as (B, H, N, M, K)."""
    through = x.transpose(2, 3) @ jk.permute(0, 1, 3, 4, 2)
    return x @ ij.transpose(-1, -2) + through.transpose(2, 3)


def _sum(p, ij, jk):
    """The sum over j of p[i, k, j] (ij[i, j] + jk[j, k])."""
    return p @ ij + (p.transpose(2, 3) @ jk.transpose(2, 3)).transpose(2, 3)


def _scores(query, key_ij, key_jk, mask, scale):
    scores = _product(wide(query), wide(key_ij), wide(key_jk))
    if mask is not None:
        scores = scores + mask.to(scores.dtype) * _DROPPED
    return scores * scale


@implements("npu_fused_floyd_attention")
def npu_fused_floyd_attention(
    query_ik, key_ij, value_ij, key_jk, value_jk, *, atten_mask=None, scale_value=1.0
):
    name = "npu_fused_floyd_attention"
    _check(name, query_ik, key_ij, value_ij, key_jk, value_jk, atten_mask)
    scores = _scores(query_ik, key_ij, key_jk, atten_mask, scale_value)
    if scores.size(-1) == 0:
        none = scores.new_zeros(*query_ik.shape[:4], 8)
        return none, none.clone(), torch.zeros_like(query_ik)
    m = scores.detach().amax(-1, keepdim=True)
    p = torch.exp(scores - m)
    total = p.sum(-1, keepdim=True)
    out = _sum(p / total, wide(value_ij), wide(value_jk)).to(query_ik.dtype)
    m, total = (x.detach().expand(*x.shape[:4], 8).contiguous() for x in (m, total))
    return m, total, out


@implements("npu_fused_floyd_attention_backward")
def npu_fused_floyd_attention_backward(
    grad_output, query_ik, key_ij, value_ij, key_jk, value_jk, attention_out, softmax_max,
    softmax_sum, *, atten_mask=None, scale_value=1.0,
):  # fmt: skip
    name = "npu_fused_floyd_attention_backward"
    _check(name, query_ik, key_ij, value_ij, key_jk, value_jk, atten_mask)
    statistic = [*query_ik.shape[:4], 8]
    shapes(
        name, grad_output=(grad_output, query_ik.shape), attention_out=(attention_out, query_ik.shape),
        softmax_max=(softmax_max, statistic), softmax_sum=(softmax_sum, statistic),
    )  # fmt: skip
    q, g = wide(query_ik), wide(grad_output)
    scores = _scores(query_ik, key_ij, key_jk, atten_mask, scale_value)
    total = softmax_sum[..., :1]
    p = torch.exp(scores - softmax_max[..., :1]) / torch.where(total == 0, 1, total)
    dp = _product(g, wide(value_ij), wide(value_jk))
    ds = p * (dp - (g * wide(attention_out)).sum(-1, keepdim=True)) * scale_value

    def to_jk(weights, rows):
        """The sum over i of weights[i, k, j] rows[i, k]."""
        return (weights.permute(0, 1, 3, 4, 2) @ rows.transpose(2, 3)).transpose(2, 3)

    grads = (
        _sum(ds, wide(key_ij), wide(key_jk)), ds.transpose(-1, -2) @ q, p.transpose(-1, -2) @ g,
        to_jk(ds, q), to_jk(p, g),
    )  # fmt: skip
    return tuple(x.to(query_ik.dtype) for x in grads)
