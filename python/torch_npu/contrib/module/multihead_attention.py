# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention as Ascend's versions of Fairseq call it."""

import math

from torch import Tensor, nn

import torch_npu

from .ensemble_dropout import NpuFairseqDropout

__all__ = ["MultiheadAttention"]


class MultiheadAttention(nn.Module):
    """Fairseq's module on npu_multi_head_attention.

    Query, key and value are tokens of a batch one after another, (batch * length, features).
    `key_padding_mask` is added to the scores, (batch, 1 or heads, 1 or tgt_len, src_len).
    """

    def __init__(
        self, embed_dim, num_heads, kdim=None, vdim=None, dropout=0.0, bias=True,
        add_bias_kv=False, add_zero_attn=False, self_attention=False,
        encoder_decoder_attention=False, q_noise=0.0, qn_block_size=8,
    ):  # fmt: skip
        super().__init__()
        if embed_dim % num_heads:
            raise ValueError(f"embed_dim {embed_dim} must be divisible by num_heads {num_heads}")
        for name, value in (
            ("add_bias_kv", add_bias_kv), ("add_zero_attn", add_zero_attn), ("q_noise", q_noise)
        ):  # fmt: skip
            if value:
                raise NotImplementedError(
                    f"MultiheadAttention: {name} is not supported: leave it out"
                )
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        same = self.kdim == self.vdim == embed_dim
        if self_attention and not same:
            raise ValueError("self_attention needs query, key and value of the same size")
        self.self_attention = self_attention
        self.encoder_decoder_attention = encoder_decoder_attention
        self.dropout_module = NpuFairseqDropout(dropout, module_name=type(self).__name__)
        self.k_proj = nn.Linear(self.kdim, embed_dim, bias)
        self.v_proj = nn.Linear(self.vdim, embed_dim, bias)
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias)
        for layer in (self.k_proj, self.v_proj, self.q_proj):
            nn.init.xavier_uniform_(layer.weight, gain=1 / math.sqrt(2) if same else 1.0)
        nn.init.xavier_uniform_(self.out_proj.weight)
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, bsz: int, tgt_len: int,
        s_len: int | None = None, key_padding_mask: Tensor | None = None, **options,
    ) -> tuple[Tensor, None]:  # fmt: skip
        """The result and, as on Ascend, no attention weights."""
        given = sorted(k for k, v in options.items() if v and k != "need_weights")
        if given:
            raise NotImplementedError(
                f"MultiheadAttention: {', '.join(given)} not supported: leave out"
            )
        key = query if key is None else key
        value = key if value is None else value
        source = key.size(0) // bsz
        dropout = self.dropout_module
        active = dropout.training or dropout.apply_during_inference
        mask = key_padding_mask
        if mask is None:
            mask = query.new_zeros(bsz, 1, 1, source)
        projections = (self.q_proj, self.k_proj, self.v_proj)
        found = torch_npu.npu_multi_head_attention(
            query, key, value, *(p.weight for p in projections), mask, self.out_proj.weight,
            *(p.bias for p in projections), self.out_proj.bias, None, self.num_heads,
            self.head_dim, source, tgt_len, dropout.p if active else 0.0, True,
        )  # fmt: skip
        return found[0], None
