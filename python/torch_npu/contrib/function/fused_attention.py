# SPDX-License-Identifier: Apache-2.0
"""Self-attention of BERT from its hidden states, with and without the layer norm before it."""

import torch.nn.functional as F
from torch import Tensor

import torch_npu

__all__ = ["npu_fused_attention", "npu_fused_attention_with_layernorm"]

_HEAD = 64  # the size of a head of BERT


def _attend(hidden, mask, kernels, biases, scale, keep_prob) -> Tensor:
    if hidden.dim() != 2 or hidden.size(1) % _HEAD:
        raise ValueError(
            f"expected hidden_states of size [tokens, a multiple of {_HEAD}], but got {tuple(hidden.shape)}"
        )
    if mask.dim() != 4 or hidden.size(0) % mask.size(0):
        raise ValueError(
            f"expected an attention_mask of 4 dimensions whose batch divides {hidden.size(0)} tokens, "
            f"but got {tuple(mask.shape)}"
        )
    sizes = mask.size(0), hidden.size(0) // mask.size(0), hidden.size(1) // _HEAD, _HEAD
    layers = [
        F.linear(hidden, kernel.t(), bias).view(sizes).transpose(1, 2)
        for kernel, bias in zip(kernels, biases)
    ]
    return torch_npu.npu_fused_attention_score(*layers, mask, scale, keep_prob)


def npu_fused_attention(
    hidden_states: Tensor, attention_mask: Tensor, query_kernel: Tensor, key_kernel: Tensor,
    value_kernel: Tensor, query_bias: Tensor, key_bias: Tensor, value_bias: Tensor, scale=1,
    keep_prob=1.0,
) -> Tensor:  # fmt: skip
    """dropout(softmax(q k^T * scale + mask)) v for heads of 64; kernels are (in, out).

    Ascend's default of keep_prob, 0, keeps nothing; it is 1 here, and 0 is refused.
    """
    kernels, biases = (query_kernel, key_kernel, value_kernel), (query_bias, key_bias, value_bias)
    return _attend(hidden_states, attention_mask, kernels, biases, scale, keep_prob)


def npu_fused_attention_with_layernorm(
    hidden_states: Tensor, attention_mask: Tensor, query_kernel: Tensor, key_kernel: Tensor,
    value_kernel: Tensor, query_bias: Tensor, key_bias: Tensor, value_bias: Tensor, gamma: Tensor,
    beta: Tensor, scale=1, keep_prob=1.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """npu_fused_attention of the layer norm of hidden_states, and that layer norm."""
    norm = F.layer_norm(hidden_states, [hidden_states.size(-1)], gamma, beta, 1e-5)
    kernels, biases = (query_kernel, key_kernel, value_kernel), (query_bias, key_bias, value_bias)
    return _attend(norm, attention_mask, kernels, biases, scale, keep_prob), norm
