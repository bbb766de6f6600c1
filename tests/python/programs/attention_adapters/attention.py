# SPDX-License-Identifier: Apache-2.0
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    r = data(dtype)
    attend = F.scaled_dot_product_attention
    for causal in (False, True):
        same(lambda q, k, v: attend(q, k, v, is_causal=causal), r(2, 3, 6, 8), r(2, 3, 6, 8), r(2, 3, 6, 8))
        same(lambda q, k, v: attend(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=causal),
             r(2, 6, 3, 8), r(2, 6, 3, 8), r(2, 6, 3, 8))
    same(lambda q, k, v, m: attend(q, k, v, attn_mask=m.detach()), r(2, 3, 6, 8), r(2, 3, 7, 8),
         r(2, 3, 7, 8), r(6, 7))
overload = "_scaled_dot_product_fused_attention_overrideable"
ran(overload, overload + "_backward")
