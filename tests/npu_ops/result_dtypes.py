# SPDX-License-Identifier: Apache-2.0
"""The dtypes of floating results for float16 and bfloat16 inputs, from the documents.

Results have the inputs' dtype, statistics are float32. Operators with other than one result of the inputs'
dtype are listed: x is the inputs' dtype, s float32.
"""

import torch

LISTED = {
    "npu_rms_norm": "x s", "npu_gemma_rms_norm": "x s", "npu_add_rms_norm": "x s x",
    "npu_add_rms_norm_cast": "s x s x", "npu_add_rms_norm_v2": "s",
    "npu_add_rms_norm_v2_functional": "s x x", "npu_deep_norm": "s s x",
    "npu_add_layer_norm": "x s s x", "npu_group_norm_swish": "x s s", "npu_group_norm_silu": "x x x",
    "npu_fusion_attention": "x s s x", "npu_fusion_attention_v2": "x s s x",
    "npu_fusion_attention_v3": "x s s x", "npu_fused_infer_attention_score": "x s",
    "npu_fused_infer_attention_score_v2": "x s", "npu_fused_attention_score_fwd": "x x",
    "npu_cross_entropy_loss": "x x x s", "batch_norm_reduce": "s s",
    "_npu_moe_token_unpermute": "x x", "npu_moe_token_permute_with_routing_map": "x x",
    "npu_moe_token_permute_with_routing_map_grad": "x x", "npu_moe_token_unpermute_grad": "x x",
    "npu_moe_init_routing_v2": "x s", "npu_moe_re_routing": "x s", "npu_geglu": "x x",
    "npu_apply_rotary_pos_emb": "x x", "npu_mrope": "x x", "npu_linear_backward": "x x",
    "npu_kv_rmsnorm_rope_cache": "x x x x", "npu_kv_rmsnorm_rope_cache_v2": "x x",
    "npu_kv_rmsnorm_rope_cache_v2_functional": "x x x x", "npu_scatter_list": "x x",
    "npu_gather_pa_kv_cache_functional": "x x", "npu_scatter_pa_kv_cache_functional": "x x",
    # The casts' cases ask for float32 or int32.
    "_npu_dtype_cast": "s", "_npu_dtype_cast_backward": "s", "npu_dtype_cast_backward": "s",
    "_amp_foreach_non_finite_check": "", "npu_sign_bits_pack": "",
}  # fmt: skip


def expected(case, dtype) -> list:
    name = case.op.partition(".")[0]
    if name == "npu_dtype_cast":
        return [] if case.args[1] == 3 else [torch.float32]  # the numbers of int32 and float32
    if name == "npu_grouped_matmul" and case.kwargs.get("split_item", 0) in (0, 1):
        groups = case.kwargs.get("group_list")
        return [dtype] * (len(case.args[0]) if groups is None else len(groups))
    return [{"x": dtype, "s": torch.float32}[c] for c in LISTED.get(name, "x").split()]
