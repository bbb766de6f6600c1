# SPDX-License-Identifier: Apache-2.0
"""Flash attention of fp8 and hifloat8 query, key and value, and its gradient."""

import torch

from torch_npu.ops import _attend as core
from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import require, unsupported, wide

_BLOCKS = (128, 256, 512)  # rows that share a scale; which one follows from the scale's size


class _Call:
    """The checked arguments of a call; tensors as (B, N, S, D)."""

    def __init__(self, name, heads: int, layout: str, query_dtype):
        self.name, self.heads, self.layout, self.number = name, heads, layout.upper(), query_dtype
        require(heads > 0, f"{name}: head_num must > 0, but got {heads}")
        require(
            self.layout in core.LAYOUTS,
            f"{name}: The input_layout should be BSH/SBH/BNSD/BSND(case-insensitive), but got {layout}",
        )

    def take(self, query, key, value) -> None:
        name, rank = self.name, 4 if self.layout in ("BSND", "BNSD") else 3
        for what, x in (("query", query), ("key", key), ("value", value)):
            require(
                x.dim() == rank and x.dtype == query.dtype,
                f"{name}: {what} is {x.dtype} {list(x.shape)}; layout {self.layout} takes {rank} "
                f"dimensions, and all three tensors {query.dtype}.",
            )
        if query.dtype == torch.int8:
            unsupported(
                f"{name}: query is torch.int8, which is not supported; allowed: float8_e4m3fn, or "
                "uint8 with query_dtype 290 (hifloat8)."
            )
        self.kind = lowp.kind_of_tensor(query, self.number, name, "query", (lowp.E4M3, lowp.HIF8))
        require(
            rank == 4 or (self.heads > 0 and query.size(-1) % self.heads == 0),
            f"{name}: head_num is {self.heads}, but query's last size {query.size(-1)} is no multiple.",
        )
        kv = self.heads if rank == 4 else key.size(-1) * self.heads // max(query.size(-1), 1)
        require(
            rank == 4 or (kv > 0 and key.size(-1) % kv == 0 and value.size(-1) % kv == 0),
            f"{name}: query has shape {list(query.shape)}, key {list(key.shape)} and value "
            f"{list(value.shape)}; head_num {self.heads} does not split their last sizes.",
        )
        self.q = core.to_bnsd(self.numbers(query), self.layout, self.heads)
        self.k, self.v = (core.to_bnsd(self.numbers(x), self.layout, kv) for x in (key, value))
        require(
            self.q.size(1) == self.heads and self.k.shape[:3] == self.v.shape[:3]
            and self.q.size(0) == self.k.size(0) and self.q.size(3) == self.k.size(3)
            and self.k.size(1) > 0 and self.heads % self.k.size(1) == 0,
            f"{name}: query has shape {list(query.shape)}, key {list(key.shape)} and value "
            f"{list(value.shape)} in layout {self.layout}; allowed: one batch and head size, head_num "
            f"{self.heads} query heads, key and value of as many rows and heads.",
        )  # fmt: skip

    def numbers(self, x):
        return lowp.decode(x, self.kind)

    def scale(self, what: str, scale, like):
        """(B, N, S, 1): the scale of each row of `like`, from one per block of rows."""
        batch, heads, size = like.shape[:3]
        counts = [-(-size // block) for block in _BLOCKS]
        fits = [b for b, n in zip(_BLOCKS, counts, strict=True) if scale.shape[2:] == (n, 1)]
        require(
            scale.dim() == 4 and list(scale.shape[:2]) == [batch, heads] and fits,
            f"{self.name}: {what} has shape {list(scale.shape)}; allowed: ({batch}, {heads}, "
            f"{' or '.join(str(n) for n in counts)}, 1), one number for 128, 256 or 512 rows.",
        )  # fmt: skip
        return lowp.spread(scale.float(), 2, fits[0], size)

    def back(self, x):
        return core.from_bnsd(x, self.layout).to(torch.bfloat16)

    def one(self, what: str, scale):
        """A scale of one number; None: 1."""
        if scale is None:
            return 1.0
        require(
            scale.numel() == 1,
            f"{self.name}: {what} has shape {list(scale.shape)}; allowed: one number.",
        )
        return scale.float().reshape(())


@implements("npu_quant_fusion_attention")
def npu_quant_fusion_attention(
    query, key, value, head_num, input_layout, *, d_scale_q, d_scale_k, d_scale_v, p_scale=None,
    scale=1.0, query_dtype=None,
):  # fmt: skip
    call = _Call("npu_quant_fusion_attention", head_num, input_layout, query_dtype)
    call.take(query, key, value)
    q = call.q * call.scale("d_scale_q", d_scale_q, call.q)
    k = call.k * call.scale("d_scale_k", d_scale_k, call.k)
    v = call.v * call.scale("d_scale_v", d_scale_v, call.v)
    p, m, total = core.softmax_parts(core.scores_of(q, k, scale, None, 1, None))
    factor = call.one("p_scale", p_scale)
    p = lowp.through(p * factor, call.kind) / factor
    out = p @ core.share_heads(v, head_num) / torch.where(total == 0, 1, total)
    m, total = (x.expand(*x.shape[:3], 8).contiguous() for x in (m, total))
    return call.back(out), m, total, m.new_empty(0), 0, 0, 0


@implements("npu_quant_fusion_attention_backward")
def npu_quant_fusion_attention_backward(
    query, key, value, dy, head_num, input_layout, d_scale_q, d_scale_k, d_scale_v, d_scale_dy, *,
    p_scale=None, ds_scale=None, softmax_max=None, softmax_sum=None, attention_in=None,
    scale_value=1.0, query_dtype=None,
):  # fmt: skip
    name = "npu_quant_fusion_attention_backward"
    call = _Call(name, head_num, input_layout, query_dtype)
    call.take(query, key, value)
    for what, x in (
        ("softmax_max", softmax_max), ("softmax_sum", softmax_sum), ("attention_in", attention_in)
    ):  # fmt: skip
        require(x is not None, f"{name}: {what} is None; pass the result of the forward operator.")
    q, k, v = call.q, call.k, call.v
    require(
        list(softmax_max.shape[:3]) == list(q.shape[:3]) and softmax_sum.shape == softmax_max.shape
        and softmax_max.dim() == 4,
        f"{name}: softmax_max has shape {list(softmax_max.shape)} and softmax_sum "
        f"{list(softmax_sum.shape)}; allowed: {[*q.shape[:3], 8]}.",
    )  # fmt: skip
    require(
        dy.dtype == query.dtype,
        f"{name}: dy is {dy.dtype}; it must be query's {query.dtype}, with d_scale_dy.",
        "TYPE",
    )
    g = core.to_bnsd(call.numbers(dy), call.layout, head_num)
    out = core.to_bnsd(wide(attention_in), call.layout, head_num)
    require(
        g.shape == out.shape == (*q.shape[:3], v.size(3)),
        f"{name}: dy has shape {list(dy.shape)} and attention_in {list(attention_in.shape)}; both must "
        "be query's with the head size of value.",
    )
    scale_q = call.scale("d_scale_q", d_scale_q, q)
    scale_k, scale_v = call.scale("d_scale_k", d_scale_k, k), call.scale("d_scale_v", d_scale_v, v)
    scale_g = call.scale("d_scale_dy", d_scale_dy, g)
    p_factor, ds_factor = call.one("p_scale", p_scale), call.one("ds_scale", ds_scale)
    scores = core.scores_of(q * scale_q, k * scale_k, scale_value, None, 1, None)
    total = softmax_sum[..., :1].float()
    p = torch.exp(scores - softmax_max[..., :1].float()) / torch.where(total == 0, 1, total)
    g = g * scale_g
    dv = lowp.through(p * p_factor, call.kind).transpose(-1, -2) @ g / p_factor
    dp = g @ core.share_heads(v * scale_v, head_num).transpose(-1, -2)
    ds = p * (dp - (out * g).sum(-1, keepdim=True))
    ds = lowp.through(ds * ds_factor, call.kind) * (scale_value / ds_factor)
    dq = ds @ core.share_heads(k * scale_k, head_num)
    dk = ds.transpose(-1, -2) @ (q * scale_q)
    dk, dv = (x.unflatten(1, (k.size(1), -1)).sum(2) for x in (dk, dv))
    none = [dq.new_empty(0) for _ in range(4)]
    return call.back(dq), call.back(dk), call.back(dv), *none
