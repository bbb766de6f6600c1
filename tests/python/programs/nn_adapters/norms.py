# SPDX-License-Identifier: Apache-2.0
for dtype in DTYPES:
    r = data(dtype)
    same(lambda x, w, b: F.layer_norm(x, [4, 5], w, b), r(3, 4, 5), r(4, 5), r(4, 5))
    same(lambda x: F.layer_norm(x.transpose(0, 1), [5]), r(3, 4, 5))
    same(lambda x, w, b: F.group_norm(x, 2, w, b), r(3, 4, 5, 6), r(4), r(4))
    channels_last = r(3, 4, 5, 6).to(memory_format=torch.channels_last)
    same(lambda x, w, b: F.group_norm(x, 2, w, b), channels_last, r(4), r(4))
    same(lambda v, g: aten._weight_norm_interface(v, g, 0), r(3, 4), r(3, 1))
    for x in (r(3, 4, 5, 6), channels_last, r(6, 4)):
        same(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, r(4), r(4))
        def train(x, w, b, mean, var):
            mean, var = mean.detach().clone(), var.detach().clone()
            return F.batch_norm(x, mean, var, w, b, True), mean, var
        same(train, x, r(4), r(4), r(4), r(4).abs())
        same(lambda x, m, v: F.batch_norm(x, m.detach(), v.detach()), x, r(4), r(4).abs())
half, w = torch.randn(3, 4, 5).bfloat16(), torch.randn(5)
before = calls("native_layer_norm")[0]
same(lambda x, w: aten.native_layer_norm(x, [5], w, w, 1e-5), half, w, grad=False)
assert calls("native_layer_norm")[0] == before + 1  # the mixed call too
ran("native_layer_norm", "native_layer_norm_backward", "native_group_norm")
ran("native_group_norm_backward", "native_batch_norm", "native_batch_norm_backward")
ran("_weight_norm_interface", "_weight_norm_interface_backward")
