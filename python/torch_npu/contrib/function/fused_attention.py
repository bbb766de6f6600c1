# SPDX-License-Identifier: Apache-2.0
"""Comes with npu operators."""

from torch_npu.contrib._later import later

__all__ = ["npu_fused_attention", "npu_fused_attention_with_layernorm"]

npu_fused_attention = later("npu_fused_attention")
npu_fused_attention_with_layernorm = later("npu_fused_attention_with_layernorm")
