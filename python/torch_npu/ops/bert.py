# SPDX-License-Identifier: Apache-2.0
"""Attention of the first BERT networks on Ascend: projections, scores and their gradients, by parts."""

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import require, shapes, unsupported, wide
from torch_npu.ops.activation import _pack, _unpack

# Arguments that say how a product's operands lie; Ascend's networks never transpose them.
_FORWARD_TRANSPOSES = (
    "query_transpose", "key_transpose", "bmm_score_transpose_a", "bmm_score_transpose_b",
    "value_transpose", "dx_transpose",
)  # fmt: skip
_BACKWARD_TRANSPOSES = ("query_transpose", "key_transpose", "value_transpose", "dx_transpose")


def _refuse_transposes(name: str, arguments: tuple[str, ...], given: tuple[bool, ...]) -> None:
    for argument, value in zip(arguments, given):
        if value:
            unsupported(f"{name}: {argument} is not supported here: leave it False.")


def _check_keep(name: str, keep_prob: float) -> None:
    require(
        0 < keep_prob <= 1,
        f"{name}: keep_prob is {keep_prob}; allowed: above 0, at most 1 (1 drops nothing).",
        "VALUE",
    )


def _score(name, q, k, v, mask, scale, keep_prob):
    """(context (B·S, N·D), softmax (B, N, S, S), what is kept (B, N, S, S))."""
    _check_keep(name, keep_prob)
    for what, x in (("query_layer", q), ("key_layer", k), ("value_layer", v)):
        require(x.dim() == 4, f"{name}: {what} has {x.dim()} dimensions; allowed: 4, (B, N, S, D).")
    s = torch.softmax(wide(q) @ wide(k).transpose(-1, -2) * scale + wide(mask), -1)
    keep = torch.rand(s.shape, device=s.device) < keep_prob
    kept = s * keep / keep_prob if keep_prob < 1 else s
    context = (kept @ wide(v)).transpose(1, 2).flatten(2).flatten(0, 1)
    return context.to(q.dtype), s.to(q.dtype), keep


@implements("npu_fused_attention_score")
def npu_fused_attention_score(
    query_layer, key_layer, value_layer, attention_mask, scale, keep_prob, *transposes
):
    name = "npu_fused_attention_score"
    _refuse_transposes(name, _FORWARD_TRANSPOSES, transposes)
    return _score(name, query_layer, key_layer, value_layer, attention_mask, scale, keep_prob)[0]


@implements("npu_fused_attention_score_fwd")
def npu_fused_attention_score_fwd(
    query_layer, key_layer, value_layer, attention_mask, scale, keep_prob, *transposes
):
    name = "npu_fused_attention_score_fwd"
    _refuse_transposes(name, _FORWARD_TRANSPOSES, transposes)
    context, s, keep = _score(
        name, query_layer, key_layer, value_layer, attention_mask, scale, keep_prob
    )
    return context, s, _pack(keep)


@implements("npu_fused_attention_score_grad", "npu_fused_attention_score_backward")
def npu_fused_attention_score_grad(
    grad_output, softmax_output, query_layer, key_layer, value_layer, mask, scale, keep_prob,
    *transposes,
):  # fmt: skip
    """`mask`: the packed one that the forward pass returned."""
    name = "npu_fused_attention_score_grad"
    _refuse_transposes(name, _BACKWARD_TRANSPOSES, transposes)
    _check_keep(name, keep_prob)
    q, k, v, s = (wide(x) for x in (query_layer, key_layer, value_layer, softmax_output))
    batch, heads, length, size = q.shape
    g = wide(grad_output).view(batch, length, heads, size).transpose(1, 2)
    kept = _unpack(mask, s) / keep_prob if keep_prob < 1 else torch.ones_like(s)
    gv = (s * kept).transpose(-1, -2) @ g
    gs = g @ v.transpose(-1, -2) * kept
    gs = s * (gs - (gs * s).sum(-1, keepdim=True)) * scale
    return tuple(x.to(query_layer.dtype) for x in (gs @ k, gs.transpose(-1, -2) @ q, gv))


@implements("npu_fused_attention_layernorm_qkv_fwd")
def npu_fused_attention_layernorm_qkv_fwd(
    x, kernel_query, kernel_key, kernel_value, gamma, beta, bias_query=None, bias_key=None,
    bias_value=None, seq_len=128, num_heads=12, eps=1e-05,
):  # fmt: skip
    name = "npu_fused_attention_layernorm_qkv_fwd"
    require(
        x.dim() == 2 and seq_len > 0 and x.size(0) % seq_len == 0,
        f"{name}: x has shape {list(x.shape)}; allowed: (a multiple of seq_len {seq_len}, size).",
    )
    variance, mean = torch.var_mean(wide(x), -1, correction=0)
    norm = F.layer_norm(wide(x), [x.size(1)], wide(gamma), wide(beta), eps).to(x.dtype)
    heads = []
    for kernel, bias in (
        (kernel_query, bias_query), (kernel_key, bias_key), (kernel_value, bias_value)
    ):  # fmt: skip
        y = wide(norm) @ wide(kernel)
        y = y if bias is None else y + wide(bias)
        heads.append(y.view(-1, seq_len, num_heads, y.size(1) // num_heads).transpose(1, 2))
    return [norm, *(h.contiguous().to(x.dtype) for h in heads), mean, variance]


@implements("npu_fused_attention_qkv_grad")
def npu_fused_attention_qkv_grad(
    grad_output_query, grad_output_key, grad_output_value, query_kernel, key_kernel, value_kernel,
    hidden_states, grad_output_ln,
):  # fmt: skip
    hidden, total = wide(hidden_states), wide(grad_output_ln)
    grads = [
        wide(g).transpose(1, 2).flatten(2).flatten(0, 1)
        for g in (grad_output_query, grad_output_key, grad_output_value)
    ]
    for g, kernel in zip(grads, (query_kernel, key_kernel, value_kernel)):
        total = total + g @ wide(kernel).t()
    found = [total, *(hidden.t() @ g for g in grads), *(g.sum(0) for g in grads)]
    return [x.to(hidden_states.dtype) for x in found]


@implements("npu_multi_head_attention")
def npu_multi_head_attention(
    query, key, value, query_weight, key_weight, value_weight, attn_mask, out_proj_weight,
    query_bias, key_bias, value_bias, out_proj_bias, dropout_mask, attn_head_num,
    attn_dim_per_head, src_len, tgt_len, dropout_prob, softmax_use_float,
):  # fmt: skip
    """Tokens of a batch one after another: query (B·tgt_len, E), key and value (B·src_len, E)."""
    name = "npu_multi_head_attention"
    _check_keep(name, 1 - dropout_prob)
    n, size = attn_head_num, attn_dim_per_head
    require(
        query.dim() == 2 and tgt_len > 0 and query.size(0) % tgt_len == 0,
        f"{name}: query has shape {list(query.shape)}; allowed: (a multiple of tgt_len {tgt_len}, size).",
    )

    def project(x, weight, bias, length):
        y = F.linear(wide(x), wide(weight), None if bias is None else wide(bias))
        return y.view(-1, length, n, size).transpose(1, 2)

    q = project(query, query_weight, query_bias, tgt_len) * size**-0.5
    k = project(key, key_weight, key_bias, src_len)
    v = project(value, value_weight, value_bias, src_len)
    scores = torch.softmax(q @ k.transpose(-1, -2) + wide(attn_mask), -1)
    if dropout_mask is None:
        dropout_mask = _pack(torch.rand(scores.shape, device=scores.device) >= dropout_prob)
    kept = scores
    if dropout_prob > 0:
        kept = scores * _unpack(dropout_mask, scores) / (1 - dropout_prob)
    context = (kept @ v).transpose(1, 2).flatten(2).flatten(0, 1)
    bias = None if out_proj_bias is None else wide(out_proj_bias)
    y = F.linear(context, wide(out_proj_weight), bias)
    results = [x.to(query.dtype) for x in (y, q, k, v, scores, kept, context)]
    return results[0], dropout_mask, *results[1:]


@implements("npu_multi_head_attention_backward")
def npu_multi_head_attention_backward(
    query, key, value, query_weight, key_weight, value_weight, out_proj_weight, query_bias, key_bias,
    value_bias, out_proj_bias, query_res, key_res, value_res, attn_scores, attn_res, context, y_grad,
    dropout_mask, attn_head_num, attn_dim_per_head, src_len, tgt_len, dropout_prob,
    softmax_use_float,
):  # fmt: skip
    """From what npu_multi_head_attention saved; query_res is scaled already."""
    name = "npu_multi_head_attention_backward"
    _check_keep(name, 1 - dropout_prob)
    n, size = attn_head_num, attn_dim_per_head
    require(
        min(tgt_len, src_len, n, size) > 0,
        f"{name}: tgt_len, src_len, attn_head_num, attn_dim_per_head should not equal zero. They are "
        f"{tgt_len}, {src_len}, {n}, {size}.",
    )
    for what, x, length in (
        ("query", query, tgt_len),
        ("key", key, src_len),
        ("value", value, src_len),
    ):
        require(
            x.dim() == 2 and x.size(0) % length == 0,
            f"{name}: {what} has shape {list(x.shape)}; allowed: (a multiple of {length}, size).",
        )
    batch = query.size(0) // tgt_len
    queries, keys = [batch, n, tgt_len, size], [batch, n, src_len, size]
    scores = [batch, n, tgt_len, src_len]
    shapes(
        name, query_res=(query_res, queries), key_res=(key_res, keys), value_res=(value_res, keys),
        attn_scores=(attn_scores, scores), attn_res=(attn_res, scores),
        context=(context, [batch * tgt_len, n * size]),
        y_grad=(y_grad, [batch * tgt_len, out_proj_weight.size(0)]),
    )  # fmt: skip
    saved = (query_res, key_res, value_res, attn_scores, attn_res, context, y_grad)
    q, k, v, s, kept, context, g = (wide(x) for x in saved)
    grad = (g @ wide(out_proj_weight)).view(batch, tgt_len, n, size).transpose(1, 2)
    ds = grad @ v.transpose(-1, -2)
    if dropout_prob > 0:
        ds = ds * _unpack(dropout_mask, s) / (1 - dropout_prob)
    ds = s * (ds - (ds * s).sum(-1, keepdim=True))
    heads = (ds @ k * size**-0.5, ds.transpose(-1, -2) @ q, kept.transpose(-1, -2) @ grad)
    rows = [x.transpose(1, 2).flatten(2).flatten(0, 1) for x in heads]
    weights = [r.t() @ wide(x) for r, x in zip(rows, (query, key, value), strict=True)]
    inputs = [
        r @ wide(w) for r, w in zip(rows, (query_weight, key_weight, value_weight), strict=True)
    ]
    biases = [r.sum(0, keepdim=True) for r in (*rows, g)]
    found = (*weights, g.t() @ context, *inputs, *biases)
    return tuple(x.to(query.dtype) for x in found)
