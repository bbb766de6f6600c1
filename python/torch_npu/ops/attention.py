# SPDX-License-Identifier: Apache-2.0
"""Attention for training: npu_fusion_attention, its versions and gradients; merging of parts."""

import torch

from torch_npu.ops import _attend as core
from torch_npu.ops import implements
from torch_npu.ops._check import require, unsupported, wide
from torch_npu.ops._fusion_call import FusionCall


def _numels(shapes) -> int:
    return sum(b * n * q * k for b, n, q, k in shapes)


def _keeps(call, shapes, seed, offset, dropout_mask, device):
    """A mask of kept elements for each shape, or Nones."""
    if call.keep_prob == 1 and dropout_mask is None:
        return [None] * len(shapes)
    keeps, at = [], 0
    flat = None
    if dropout_mask is not None:
        flat = core.unpack_keep(dropout_mask, (_numels(shapes),))
    for shape in shapes:
        count = _numels([shape])
        if flat is not None:
            keeps.append(flat[at : at + count].reshape(shape))
        elif seed is None:  # traced: drawn by an operator that compilers know
            keeps.append(torch.rand(shape, device=device) < call.keep_prob)
        else:
            keeps.append(core.keep_bits(seed, offset + at, shape, call.keep_prob, device))
        at += count
    return keeps


def _draw_seed(q, seed: int) -> int | None:
    """The seed of a call's dropout; None while shapes are traced."""
    from torch._guards import detect_fake_mode

    if detect_fake_mode(q) is not None or torch.compiler.is_compiling():
        return None
    return seed or int(torch.randint(1, 2**31 - 1, (), device=q.device).item())


def _eight(x):
    return x.float().expand(*x.shape[:-1], 8)


def _forward(call, q, k, v, keeps):
    """(out, softmax_max, softmax_sum) in the operator's layout."""
    common = {
        "scale": call.scale,
        "pse_type": call.pse_type,
        "sink": call.sink,
        "keep_prob": call.keep_prob,
    }
    if call.layout != "TND":
        q4, k4, v4 = call.heads_first(q, k, v)
        sq, skv = q4.size(2), k4.size(2)
        out, m, total = core.attend(
            q4, k4, v4, pse=call.pse_of(sq, skv), drop=call.drop(sq, skv), keep=keeps[0], **common
        )
        return from_heads(out, call.layout, q), _eight(m).contiguous(), _eight(total).contiguous()
    outs, ms, totals, qs, ks = [], [], [], 0, 0
    for i, (sq, skv) in enumerate(zip(call.qlen, call.kvlen)):
        parts = [
            x.transpose(0, 1)[None] for x in (q[qs : qs + sq], k[ks : ks + skv], v[ks : ks + skv])
        ]
        out, m, total = core.attend(
            *parts, pse=call.pse_of(sq, skv, i), drop=call.drop(sq, skv, i), keep=keeps[i], **common
        )
        outs.append(out[0].transpose(0, 1))
        ms.append(_eight(m)[0])
        totals.append(_eight(total)[0])
        qs, ks = qs + sq, ks + skv
    rest = q.size(0) - qs
    outs.append(outs[0].new_zeros(rest, *outs[0].shape[1:]))
    out = torch.cat(outs).to(q.dtype)
    return out, _pack_stats(call, ms, rest, core.EMPTY_ROW), _pack_stats(call, totals, rest, 0.0)


def from_heads(x, layout, like):
    return core.from_bnsd(x.to(like.dtype), layout).contiguous()


def _pack_stats(call, parts, rest, fill):
    """(T, N, 8): true, or each sequence as a block (N, S, 8) of memory."""
    if call.packed_stats:
        parts = [p.transpose(0, 1) for p in parts]
    parts = [*parts, parts[0].new_full((rest, call.heads, 8), fill)]
    return torch.cat([p.reshape(-1, call.heads, 8) for p in parts])


def _unpack_stats(call, x):
    """Statistics as (1 or B, N, S, 1) for each sequence."""
    if call.layout != "TND":
        return [x[..., :1]]
    parts, at = [], 0
    for s in call.qlen:
        block = x[at : at + s]
        if call.packed_stats:
            block = block.transpose(0, 1)
        parts.append(block.reshape(1, call.heads, s, 8)[..., :1])
        at += s
    return parts


def _run(call, q, k, v, dropout_mask, seed, offset):
    shapes = call.dropout_shapes(q, k)
    if call.keep_prob < 1 and dropout_mask is None:
        seed = _draw_seed(q, seed)
    keeps = _keeps(call, shapes, seed, offset, dropout_mask, q.device)
    out, m, total = _forward(call, q, k, v, keeps)
    return out, m, total, q.new_empty(0), seed or 0, offset, _numels(shapes)


@implements("npu_fusion_attention")
def npu_fusion_attention(
    query, key, value, head_num, input_layout, pse=None, padding_mask=None, atten_mask=None,
    scale=1.0, keep_prob=1.0, pre_tockens=core.FAR, next_tockens=core.FAR, inner_precise=0,
    prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True,
    sync=False, softmax_layout="", sink=None, dropout_mask=None, seed=0, offset=0,
):  # fmt: skip
    call = FusionCall(
        "npu_fusion_attention", query, key, value, head_num, input_layout, scale=scale, pse=pse,
        keep_prob=keep_prob, mask=atten_mask, pre=pre_tockens, next_=next_tockens, prefix=prefix,
        qlen=actual_seq_qlen, kvlen=actual_seq_kvlen, mode=sparse_mode, sink=sink,
        softmax_layout=softmax_layout,
    )  # fmt: skip
    return _run(call, query, key, value, dropout_mask, seed, offset)


def _with_ropes(name, query, key, query_rope, key_rope, layout: str):
    """(query, key) with the rotary part behind the rest of each head."""
    require(
        (query_rope is None) == (key_rope is None),
        f"{name}: query_rope and key_rope must be given together.",
    )
    if query_rope is None:
        return query, key
    if layout.upper() in ("BSH", "SBH"):
        unsupported(
            f"{name}: query_rope with input_layout {layout} is not supported; allowed: BSND, BNSD, TND."
        )
    return torch.cat((query, query_rope), -1), torch.cat((key, key_rope), -1)


@implements("npu_fusion_attention_v2")
def npu_fusion_attention_v2(
    query, key, value, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None,
    query_rope=None, key_rope=None, scale=1.0, keep_prob=1.0, pre_tokens=core.FAR,
    next_tokens=core.FAR, inner_precise=0, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None,
    sparse_mode=0, gen_mask_parallel=True, sync=False, pse_type=1, q_start_idx=None,
    kv_start_idx=None, softmax_layout="", sink=None, dropout_mask=None, seed=0, offset=0,
):  # fmt: skip
    name = "npu_fusion_attention_v2"
    core.check_pse_type(name, pse_type)
    q, k = _with_ropes(name, query, key, query_rope, key_rope, input_layout)
    if pse is None or pse_type == 1:
        return torch.ops.npu.npu_fusion_attention(
            q, k, value, head_num, input_layout, pse, padding_mask, atten_mask, scale, keep_prob,
            pre_tokens, next_tokens, inner_precise, prefix, actual_seq_qlen, actual_seq_kvlen,
            sparse_mode, gen_mask_parallel, sync, softmax_layout, sink, dropout_mask, seed, offset,
        )  # fmt: skip
    call = FusionCall(
        name, q, k, value, head_num, input_layout, scale=scale, pse=pse, pse_type=pse_type,
        keep_prob=keep_prob, mask=atten_mask, pre=pre_tokens, next_=next_tokens, prefix=prefix,
        qlen=actual_seq_qlen, kvlen=actual_seq_kvlen, mode=sparse_mode, sink=sink,
        softmax_layout=softmax_layout,
    )  # fmt: skip
    return _run(call, q, k, value, dropout_mask, seed, offset)


def _backward(call, q, k, v, dy, m, total, out, keeps):
    """Gradients in the inputs' layouts: (dq, dk, dv, dpse, dsink)."""
    common = {
        "scale": call.scale,
        "pse_type": call.pse_type,
        "sink": call.sink,
        "keep_prob": call.keep_prob,
    }
    ms, totals = _unpack_stats(call, m), _unpack_stats(call, total)
    if call.layout != "TND":
        q4, k4, v4 = call.heads_first(q, k, v)
        dy4, out4 = (core.to_bnsd(x, call.layout, call.heads) for x in (dy, out))
        sq, skv = q4.size(2), k4.size(2)
        dq, dk, dv, dpse, dsink = core.attend_grad(
            q4, k4, v4, dy4, out4, ms[0], totals[0], pse=call.pse_of(sq, skv),
            drop=call.drop(sq, skv), keep=keeps[0], **common,
        )  # fmt: skip
        grads = [from_heads(g, call.layout, x) for g, x in ((dq, q), (dk, k), (dv, v))]
        return _with_extras(call, grads, q, dpse, dsink)
    grads = [torch.zeros_like(x) for x in (q, k, v)]
    dpse, dsink = None, None
    qs = ks = 0
    for i, (sq, skv) in enumerate(zip(call.qlen, call.kvlen)):
        rows = [slice(qs, qs + sq), slice(ks, ks + skv), slice(ks, ks + skv)]
        heads = [
            x[r].transpose(0, 1)[None]
            for x, r in zip((q, k, v, dy, out), [*rows, rows[0], rows[0]])
        ]
        found = core.attend_grad(
            *heads, ms[i], totals[i], pse=call.pse_of(sq, skv, i), drop=call.drop(sq, skv, i),
            keep=keeps[i], **common,
        )  # fmt: skip
        for grad, part, row in zip(grads, found, rows):
            grad[row] = part[0].transpose(0, 1).to(grad.dtype)
        if found[3] is not None:
            unsupported(f"{call.name}: the gradient of pse in layout TND is not supported.")
        dsink = found[4] if dsink is None else dsink + found[4]
        qs, ks = qs + sq, ks + skv
    return _with_extras(call, grads, q, dpse, dsink)


def _with_extras(call, grads, q, dpse, dsink):
    empty = q.new_empty(0)
    dpse = empty if dpse is None else dpse.to(call.pse.dtype)
    return (*grads, dpse, empty.float() if dsink is None else dsink.to(call.sink.dtype))


def _check_stats(name, softmax_max, softmax_sum, attention_in) -> None:
    for what, x in (
        ("softmax_max", softmax_max),
        ("softmax_sum", softmax_sum),
        ("attention_in", attention_in),
    ):
        require(x is not None, f"{name}: {what} is None; pass the result of the forward operator.")


@implements("npu_fusion_attention_grad")
def npu_fusion_attention_grad(
    query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None,
    softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, scale_value=1.0,
    keep_prob=1.0, pre_tockens=core.FAR, next_tockens=core.FAR, inner_precise=0, seed=0, offset=0,
    numels=0, prefix=None, actual_seq_qlen=None, actual_seq_kvlen=None, sparse_mode=0,
    gen_mask_parallel=True, sync=False, softmax_layout="", sink=None,
):  # fmt: skip
    name = "npu_fusion_attention_grad"
    _check_stats(name, softmax_max, softmax_sum, attention_in)
    call = FusionCall(
        name, query, key, value, head_num, input_layout, scale=scale_value, pse=pse,
        keep_prob=keep_prob, mask=atten_mask, pre=pre_tockens, next_=next_tockens, prefix=prefix,
        qlen=actual_seq_qlen, kvlen=actual_seq_kvlen, mode=sparse_mode, sink=sink,
        softmax_layout=softmax_layout,
    )  # fmt: skip
    keeps = _keeps(call, call.dropout_shapes(query, key), seed, offset, None, query.device)
    return _backward(call, query, key, value, dy, softmax_max, softmax_sum, attention_in, keeps)


@implements("npu_fusion_attention_grad_v2")
def npu_fusion_attention_grad_v2(
    query, key, value, dy, head_num, input_layout, *, pse=None, padding_mask=None, atten_mask=None,
    softmax_max=None, softmax_sum=None, softmax_in=None, attention_in=None, query_rope=None,
    key_rope=None, scale_value=1.0, keep_prob=1.0, pre_tokens=core.FAR, next_tokens=core.FAR,
    inner_precise=0, seed=0, offset=0, numels=0, prefix=None, actual_seq_qlen=None,
    actual_seq_kvlen=None, sparse_mode=0, gen_mask_parallel=True, sync=False, pse_type=1,
    q_start_idx=None, kv_start_idx=None, softmax_layout="", sink=None,
):  # fmt: skip
    name = "npu_fusion_attention_grad_v2"
    _check_stats(name, softmax_max, softmax_sum, attention_in)
    core.check_pse_type(name, pse_type)
    q, k = _with_ropes(name, query, key, query_rope, key_rope, input_layout)
    call = FusionCall(
        name, q, k, value, head_num, input_layout, scale=scale_value, pse=pse, pse_type=pse_type,
        keep_prob=keep_prob, mask=atten_mask, pre=pre_tokens, next_=next_tokens, prefix=prefix,
        qlen=actual_seq_qlen, kvlen=actual_seq_kvlen, mode=sparse_mode, sink=sink,
        softmax_layout=softmax_layout,
    )  # fmt: skip
    keeps = _keeps(call, call.dropout_shapes(q, k), seed, offset, None, q.device)
    dq, dk, dv, dpse, dsink = _backward(
        call, q, k, value, dy, softmax_max, softmax_sum, attention_in, keeps
    )
    if query_rope is None:
        return dq, dk, dv, dpse, q.new_empty(0), q.new_empty(0), dsink
    size = query.size(-1)
    return (
        dq[..., :size].contiguous(), dk[..., :size].contiguous(), dv, dpse,
        dq[..., size:].contiguous(), dk[..., size:].contiguous(), dsink,
    )  # fmt: skip


@implements("npu_ring_attention_update")
def npu_ring_attention_update(
    prev_attn_out, prev_softmax_max, prev_softmax_sum, cur_attn_out, cur_softmax_max,
    cur_softmax_sum, *, actual_seq_qlen=None, input_layout="SBH", input_softmax_layout="",
):  # fmt: skip
    name = "npu_ring_attention_update"
    require(
        input_layout in ("SBH", "TND"),
        f"{name}: input_layout is {input_layout}; allowed: SBH, TND.",
    )
    m = torch.maximum(prev_softmax_max, cur_softmax_max)
    a = prev_softmax_sum * torch.exp(prev_softmax_max - m)
    b = cur_softmax_sum * torch.exp(cur_softmax_max - m)
    total = a + b
    whole = torch.where(total == 0, torch.ones_like(total), total)
    shares = [
        _spread(x / whole, cur_attn_out, input_layout, input_softmax_layout, actual_seq_qlen, name)
        for x in (a, b)
    ]
    out = wide(prev_attn_out) * shares[0] + wide(cur_attn_out) * shares[1]
    return out.to(prev_attn_out.dtype), m, total


def _spread(share, out, layout, softmax_layout, lengths, name):
    """A factor per row of statistics as a factor per element of the output."""
    share = share[..., 0]
    if layout == "SBH":  # (B, N, S) to (S, B, N * D)
        return share.permute(2, 0, 1).repeat_interleave(out.size(2) // share.size(1), 2)
    if softmax_layout != "TND":
        require(
            lengths is not None, f"{name}: actual_seq_qlen must be given with input_layout TND."
        )
        steps = core.lengths_of(lengths.tolist(), name, "actual_seq_qlen")
        heads, at, parts = out.size(1), 0, []
        for s in [x for x in steps if x]:
            parts.append(share[at : at + s].reshape(heads, s).transpose(0, 1))
            at += s
        share = torch.cat([*parts, share[at:]])
    return share[..., None]


@implements("npu_attention_update")
def npu_attention_update(lse, local_out, update_type):
    name = "npu_attention_update"
    require(
        len(lse) == len(local_out) and len(lse) > 0,
        f"{name}: lse has {len(lse)} tensors and local_out {len(local_out)}; give as many, at least one.",
    )
    require(update_type in (0, 1), f"{name}: update_type is {update_type}; allowed: 0, 1.", "VALUE")
    stacked = torch.stack([wide(x) for x in lse])
    whole = torch.logsumexp(stacked, 0)
    out = sum(wide(o) * torch.exp(x - whole)[:, None] for o, x in zip(local_out, stacked))
    return out.to(local_out[0].dtype), whole if update_type == 1 else whole.new_empty(0)


@implements("npu_attn_softmax_")
def npu_attn_softmax_(input):
    return input.copy_(torch.softmax(wide(input), -1))
