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
    "npu_rope_quant_kvcache": "x x x", "npu_dequant_rope_quant_kvcache": "x x x",
    "npu_qkv_rms_norm_rope_cache": "x x x",
    "npu_qkv_rms_norm_rope_cache_functional": "x x x x x x", "npu_nms_rotated": "",
    "npu_lstm": "x x x x x x x x", "npu_lstm_data": "x x x x x x x x", "npu_lstm_cell": "x x x x x x x x",
    "npu_lstm_backward": "x x x x x", "npu_lstm_data_backward": "x x x x x",
    "npu_lstm_cell_backward": "x x x x x x x", "npu_gru": "x x x x x x",
    "_lstm_npu": "x x x x x x x x x x", "_gru_npu": "x x x x x x x",
    "npu_gru_backward": "x x x x x x", "npu_bert_apply_adam": "x x x", "npu_top_k_top_p_sample": "s",
    "npu_kv_rmsnorm_rope_cache": "x x x x", "npu_kv_rmsnorm_rope_cache_v2": "x x",
    "npu_kv_rmsnorm_rope_cache_v2_functional": "x x x x", "npu_scatter_list": "x x",
    "npu_gather_pa_kv_cache_functional": "x x", "npu_scatter_pa_kv_cache_functional": "x x",
    "npu_chunk_gated_delta_rule": "x x", "npu_recurrent_gated_delta_rule_functional": "x x",
    "npu_fused_causal_conv1d_v2": "", "npu_masked_causal_conv1d_backward": "x x",
    "npu_mhc_post_backward": "x s x s", "npu_mhc_pre": "x s s s s s",
    "npu_mhc_pre_backward": "x s s s s", "npu_moe_init_routing_quant": "s",
    "_npu_moe_token_unpermute_with_routing_map": "x x",
    "npu_moe_token_unpermute_with_routing_map_grad": "x x",
    # Results of eight bits are compared with their dtype by test_values.
    "npu_dynamic_mx_quant": "", "npu_dynamic_mx_quant_with_dual_axis": "",
    "npu_dynamic_block_mx_quant": "", "npu_grouped_dynamic_mx_quant": "",
    "npu_swiglu_mx_quant": "", "npu_swiglu_mx_quant_with_dual_axis": "",
    "npu_grouped_dynamic_block_quant": "s", "npu_rms_norm_quant_v2": "s",
    "_quantize_per_channel_impl": "", "_quantize_per_tensor_impl": "",
    "npu_swiglu_group_quant": "s x",
    "npu_dynamic_dual_level_mx_quant": "s", "npu_swiglu_group_quant_backward": "x x",
    "npu_fused_linear_online_max_sum": "s s s x",
    "npu_fused_linear_cross_entropy_loss_with_max_sum_backward": "x x",
    "npu_block_sparse_attention": "x s", "npu_block_sparse_attention_backward": "x x x",
    "npu_fused_floyd_attention": "s s x", "npu_fused_floyd_attention_backward": "x x x x x",
    "npu_sparse_flash_attention": "x s s", "npu_sparse_flash_attention_grad": "x x x x x",
    "npu_lightning_indexer_grad": "x x x", "npu_dense_lightning_indexer_softmax_lse": "s s",
    "npu_dense_lightning_indexer_grad_kl_loss": "x x x s",
    "npu_sparse_lightning_indexer_grad_kl_loss": "x x x s", "npu_nsa_compress_grad": "x x",
    "npu_nsa_compress_attention": "x s s", "npu_nsa_select_attention": "x s s",
    "npu_nsa_select_attention_grad": "x x x", "npu_mla_prolog": "x x x x",
    "npu_mla_prolog_v2": "x x x x s", "npu_mla_prolog_v3": "x x s x s", "npu_mla_prolog_v3_functional": "x x s x s x x",
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
