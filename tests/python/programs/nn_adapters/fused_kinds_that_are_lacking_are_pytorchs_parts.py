# SPDX-License-Identifier: Apache-2.0
# NPU_DISABLE_KIND=attention,attention_grad,cross_entropy,cross_entropy_grad,batch_norm,batch_norm_grad
overload = "_scaled_dot_product_fused_attention_overrideable"
for dtype in DTYPES:
    r = data(dtype)
    same(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
         r(2, 3, 6, 8), r(2, 3, 6, 8), r(2, 3, 6, 8))
    same(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), r(3, 4), torch.tensor([0, 3, 1]))
    same(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), r(4, 3, 5), r(3), r(3))
    assert calls(overload)[2] == calls(overload + "_backward")[2] == 0
    assert calls("cross_entropy_loss")[2] == calls("native_batch_norm")[2] == 0
