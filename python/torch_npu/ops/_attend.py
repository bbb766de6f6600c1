# SPDX-License-Identifier: Apache-2.0
"""What all attention operators share: layouts, masks, and softmax with its statistics."""

import torch

from torch_npu.ops._check import require, unsupported, wide

FAR = 2147483647  # pre and next tokens that cut nothing off
EMPTY_ROW = torch.finfo(torch.float32).min  # softmax_max of a row that keeps no key
LAYOUTS = ("BSH", "SBH", "BSND", "BNSD")


def to_bnsd(x: torch.Tensor, layout: str, heads: int) -> torch.Tensor:
    if layout == "BNSD":
        return x
    if layout == "BSND":
        return x.transpose(1, 2)
    split = x.unflatten(-1, (heads, -1))
    return split.transpose(1, 2) if layout == "BSH" else split.permute(1, 2, 0, 3)


def from_bnsd(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "BNSD":
        return x
    if layout == "NBSD":
        return x.transpose(0, 1)
    if layout == "BSND":
        return x.transpose(1, 2)
    if layout == "BSH":
        return x.transpose(1, 2).flatten(2)
    return x.permute(2, 0, 1, 3).flatten(2)


def band(sq, skv, shift, pre: int, next_: int, device) -> torch.Tensor:
    """True where key j is outside -pre <= j - (i + shift) <= next."""
    rows = torch.arange(sq, device=device)[:, None] + shift
    apart = torch.arange(skv, device=device)[None, :] - rows
    outside = torch.zeros_like(apart, dtype=torch.bool)
    if next_ < FAR:
        outside = outside | (apart > next_)
    return outside | (apart < -pre) if pre < FAR else outside


def check_compressed(name: str, mask, mode: int) -> None:
    """Modes that are a band whatever the mask's values take a mask of one size."""
    rows = 3072 if mode == 6 else 2048
    require(
        tuple(mask.shape[-2:]) == (rows, 2048),
        f"{name}: atten_mask has shape {list(mask.shape)}; sparse_mode {mode} takes [{rows}, 2048].",
    )


def dropped(mask, mode: int, sq, skv, pre: int, next_: int, prefix=None, device=None):
    """True where a score is dropped, broadcast to (B, N, Sq, Skv); None: nothing is.

    Without a mask every mode is full attention. Modes 2, 3, 4 and 6 are given a mask of fixed size
    whose values say nothing new, so they are made from the sizes.
    """
    if mask is None:
        return None
    device = mask.device if device is None else device
    if mode in (0, 1, 5):
        given = mask.bool()
        if mode == 0 and (pre < FAR or next_ < FAR):
            return given | band(sq, skv, 0, pre, next_, device)
        return given
    if mode == 2:
        return band(sq, skv, 0, FAR, 0, device)
    if mode == 3:
        return band(sq, skv, skv - sq, FAR, 0, device)
    if mode == 4:
        return band(sq, skv, skv - sq, pre, next_, device)
    causal = band(sq, skv, skv - sq, FAR, 0, device)
    require(prefix is not None, "sparse_mode is 6: prefix must be given, one number per batch.")
    ends = torch.tensor(prefix, device=device)[:, None, None, None]
    return causal & (torch.arange(skv, device=device) >= ends)


def share_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(B, Nkv, S, D) for every query head: n uses n // (N / Nkv)."""
    kv_heads = x.size(1)
    if kv_heads == heads:
        return x
    require(
        kv_heads > 0 and heads % kv_heads == 0,
        f"the number of query heads ({heads}) must be a multiple of key and value's ({kv_heads}).",
    )
    return x.repeat_interleave(heads // kv_heads, 1)


def scores_of(q, k, scale: float, pse, pse_type: int, drop):
    """Masked and scaled scores (B, N, Sq, Skv), dropped ones -inf."""
    scores = wide(q) @ wide(share_heads(k, q.size(1))).transpose(-1, -2)
    if pse is not None and pse_type == 1:
        scores = (scores + wide(pse)) * scale
    else:
        scores = scores * scale
        if pse is not None:
            scores = scores + wide(pse)
    return scores if drop is None else scores.masked_fill(drop, float("-inf"))


def softmax_parts(scores, sink=None):
    """exp(s - m), row maximum m and row sum; rows without keys have sum 0."""
    if scores.size(-1) == 0:
        m = scores.new_full((*scores.shape[:-1], 1), EMPTY_ROW)
    else:
        m = scores.detach().amax(-1, keepdim=True).clamp_min(EMPTY_ROW)
    if sink is not None:
        sink = wide(sink).reshape(1, -1, 1, 1).to(scores.dtype)
        m = torch.maximum(m, sink.detach())
    p = torch.exp(scores - m)
    total = p.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink - m)
    return p, m, total


def attend(q, k, v, *, scale, pse=None, pse_type=1, drop=None, sink=None, keep=None, keep_prob=1.0):
    """Heads first: (out (B, N, Sq, Dv) in wide dtype, m, sum (B, N, Sq, 1))."""
    p, m, total = softmax_parts(scores_of(q, k, scale, pse, pse_type, drop), sink)
    p = p / torch.where(total == 0, torch.ones_like(total), total)
    if keep is not None:
        p = p * keep / keep_prob
    return p @ wide(share_heads(v, q.size(1))), m.detach(), total.detach()


def attend_grad(q, k, v, dy, out, m, total, *, scale, pse, pse_type, drop, sink, keep, keep_prob):
    """(dq, dk, dv, dpse or None, dsink or None) from the statistics of the forward pass."""
    scores = scores_of(q, k, scale, pse, pse_type, drop)
    total = torch.where(total == 0, torch.ones_like(total), total)
    p = torch.exp(scores - m) / total
    dy, heads = wide(dy), q.size(1)
    weights = p if keep is None else p * keep / keep_prob
    dv = _sum_heads(weights.transpose(-1, -2) @ dy, v.size(1))
    dp = dy @ wide(share_heads(v, heads)).transpose(-1, -2)
    if keep is not None:
        dp = dp * keep / keep_prob
    along = (dy * wide(out)).sum(-1, keepdim=True)
    ds = p * (dp - along)
    dpse = None if pse is None else (ds * scale if pse_type == 1 else ds).sum_to_size(pse.shape)
    dsink = None
    if sink is not None:
        share = torch.exp(wide(sink).reshape(1, -1, 1, 1) - m) / total
        dsink = (-share * along).sum((0, 2, 3))
    ds = ds * scale
    dq = ds @ wide(share_heads(k, heads))
    dk = _sum_heads(ds.transpose(-1, -2) @ wide(q), k.size(1))
    return dq, dk, dv, dpse, dsink


def _sum_heads(x, kv_heads: int):
    return x if x.size(1) == kv_heads else x.unflatten(1, (kv_heads, -1)).sum(2)


def keep_bits(seed: int, offset: int, shape, keep_prob: float, device) -> torch.Tensor:
    """Which elements dropout keeps: a function of seed, offset and place, so backward agrees."""
    count = 1
    for size in shape:
        count *= size
    start = (seed * 0x9E3779B9 + offset) & 0x7FFFFFFFFFFFFFFF
    x = torch.arange(count, device=device, dtype=torch.int64) + start
    for shift, factor in ((30, 0x3F58476D1CE4E5B9), (27, 0x14D049BB133111EB), (31, 1)):
        x = (x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))) * factor
    uniform = (x & 0xFFFFFF).double() / 0x1000000
    return (uniform < keep_prob).reshape(shape)


def unpack_keep(bits: torch.Tensor, shape) -> torch.Tensor:
    """A dropout mask of uint8 bits, little end first, 1 = keep."""
    count = 1
    for size in shape:
        count *= size
    require(
        bits.numel() * 8 >= count,
        f"dropout_mask has {bits.numel()} bytes; {count} elements need {(count + 7) // 8}.",
    )
    places = torch.arange(8, device=bits.device, dtype=torch.uint8)
    spread = (bits.flatten()[:, None] >> places) & 1
    return spread.flatten()[:count].bool().reshape(shape)


def lengths_of(cumulative, operator: str, argument: str) -> list:
    """Steps of cumulative lengths; trailing zeros mean sequences that are not computed."""
    lengths, before = [], 0
    for end in cumulative:
        if end == 0 and before > 0:
            lengths.append(0)
            continue
        require(
            end >= before,
            f"{operator}: {argument} is {list(cumulative)}; cumulative lengths must not fall.",
        )
        lengths.append(end - before)
        before = end
    return lengths


def check_pse_type(operator: str, pse_type: int) -> None:
    if pse_type in (2, 3):
        unsupported(
            f"{operator}: pse_type {pse_type} (pse made inside) is not supported; allowed: 0, 1."
        )
    require(pse_type in (0, 1), f"{operator}: pse_type is {pse_type}; allowed: 0, 1.")
