# SPDX-License-Identifier: Apache-2.0
"""Attention of each query over its own list of key rows: gathered, multiplied, added back."""

import torch

from torch_npu.ops._attend import softmax_parts
from torch_npu.ops._check import wide
from torch_npu.ops._tokens import pieces


def take(x, rows):
    """x (R, N2, D) at rows (T, N2, K): (T, N2, K, D)."""
    t, heads, count = rows.shape
    if x.size(0) == 0:
        return x.new_zeros(t, heads, count, x.size(2))
    flat = rows * heads + torch.arange(heads, device=rows.device)[:, None]
    found = x.reshape(-1, x.size(2)).index_select(0, flat.flatten())
    return found.view(t, heads, count, x.size(2))


def ready(x, rows):
    """x as `take` is fastest from: wide already where rows are taken more than once on average."""
    return wide(x) if rows.numel() > x.size(0) * x.size(1) else x


def put_back(grad, rows, keep, like):
    """The transpose of take, in the wide dtype; rows that are not kept add nothing."""
    heads = rows.size(1)
    flat = rows * heads + torch.arange(heads, device=rows.device)[:, None]
    out = grad.new_zeros(like.size(0) * heads, grad.size(-1))
    if like.size(0) == 0:
        return out.view(0, heads, grad.size(-1))
    grad = torch.where(keep[..., None], grad, grad.new_zeros(()))
    return out.index_add(0, flat.flatten(), grad.flatten(0, 2)).view(-1, heads, grad.size(-1))


def _scores(q, k, scale):
    """(T, N2, G, K) from q (T, N2 * G, D) and k (T, N2, K, D)."""
    return wide(q).unflatten(1, (k.size(1), q.size(1) // k.size(1))) @ k.transpose(-1, -2) * scale


def attend_chosen(
    q, rows, keep, take_key, take_value, value_size, *, scale, sinks=None, narrow=None
):
    """(out (T, N1, Dv), m, sum (T, N1)), wide; queries without keys give 0.

    `take_key(rows)` and `take_value(rows, keys)` give wide keys and values. `narrow`: the dtype that
    probabilities are rounded to.
    """
    t, n1, size = q.shape
    heads, count = rows.shape[1:]
    outs = []
    for a, b in pieces(t, heads * count * (size + value_size)):
        k = take_key(rows[a:b])
        scores = _scores(q[a:b], k, scale).masked_fill(~keep[a:b, :, None], float("-inf"))
        p, m, total = softmax_parts(scores.reshape(b - a, n1, 1, count), sinks)
        if narrow is not None:
            p = p.to(narrow).to(p.dtype)
        p = p / torch.where(total == 0, torch.ones_like(total), total)
        v = take_value(rows[a:b], k)
        # A page that no query reads may hold anything, NaN too.
        out = (p.reshape(b - a, heads, n1 // heads, count) @ v).reshape(b - a, n1, 1, -1)
        out = torch.where(total == 0, 0, out)
        outs.append((out.reshape(b - a, n1, -1), m[..., 0, 0], total[..., 0, 0]))
    return tuple(x[0] if len(x) == 1 else torch.cat(x) for x in zip(*outs, strict=True))


def attend_chosen_grad(q, k, v, rows, keep, dout, out, m, total, *, scale):
    """(dq, dk, dv), wide, from the statistics m and total (T, N1) of the forward pass."""
    t, n1, size = q.shape
    heads, count = rows.shape[1:]
    group = n1 // heads
    ready_k, ready_v = ready(k, rows), ready(v, rows)
    dq, dk, dv = [], 0, 0
    for a, b in pieces(t, heads * count * (size + v.size(2)) * 2):
        part, kept = rows[a:b], keep[a:b]
        keys, values = wide(take(ready_k, part)), wide(take(ready_v, part))
        sums, tops = (x[a:b].reshape(b - a, heads, group, 1) for x in (total, m))
        p = torch.exp(_scores(q[a:b], keys, scale) - tops) / torch.where(sums == 0, 1, sums)
        p = p.masked_fill(~kept[:, :, None], 0)
        g = wide(dout[a:b])
        along = (g * wide(out[a:b])).sum(-1).reshape(b - a, heads, group, 1)
        g = g.reshape(b - a, heads, group, -1)
        ds = p * (g @ values.transpose(-1, -2) - along) * scale
        dq.append((ds @ keys).reshape(b - a, n1, size))
        queries = wide(q[a:b]).reshape(b - a, heads, group, size)
        dk = dk + put_back(ds.transpose(-1, -2) @ queries, part, kept, k)
        dv = dv + put_back(p.transpose(-1, -2) @ g, part, kept, v)
    return torch.cat(dq), dk, dv
