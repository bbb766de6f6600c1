# SPDX-License-Identifier: Apache-2.0
"""The driver's plan decides, not the CPU's rule, which knows one size and refuses the rest."""
overload = "_scaled_dot_product_fused_attention_overrideable"
attend = F.scaled_dot_product_attention
for dtype in (torch.float32, torch.bfloat16):
    r = data(dtype)
    for size in (4, 12):
        before = calls(overload)[0]
        same(attend, r(2, 3, 6, 8), r(2, 3, 7, 8), r(2, 3, 7, size))
        assert calls(overload)[0] == before + 1
    same(lambda q, k, v: attend(q, k, v, enable_gqa=True), r(2, 6, 5, 8), r(2, 2, 7, 8), r(2, 2, 7, 4))
    mask = torch.rand(2, 1, 6, 7) > 0.3
    same(lambda q, k, v: attend(q, k, v, attn_mask=mask.to(q.device)), r(2, 3, 6, 8), r(2, 3, 7, 8), r(2, 3, 7, 4))
