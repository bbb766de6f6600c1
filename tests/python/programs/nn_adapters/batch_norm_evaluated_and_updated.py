# SPDX-License-Identifier: Apache-2.0
for dtype in DTYPES:
    r = data(dtype)
    channels_last = r(3, 4, 5, 6).to(memory_format=torch.channels_last)
    for x in (r(3, 4, 5, 6), channels_last, r(6, 4)):
        same(lambda x, w, b, m, v: F.batch_norm(x, m.detach(), v.detach(), w, b),
             x, r(4), r(4), r(4), r(4).abs() + 0.5)
        same(lambda x, m, v: F.batch_norm(x, m.detach(), v.detach()), x, r(4), r(4).abs() + 0.5)
        def update(x, w, b, m, v):
            m, v = m.detach().clone(), v.detach().clone()
            out, mean, rstd, reserve = aten._batch_norm_with_update(x, w, b, m, v, 0.3, 1e-3)
            assert reserve.numel() == 0 and reserve.dtype == torch.uint8
            return out, m, v
        same(update, x, r(4), r(4), r(4), r(4).abs() + 0.5)
        same(lambda x, w, b, m, v: aten._batch_norm_no_update(
             x, w, b, m.detach(), v.detach(), 0.3, 1e-3)[0],
             x, r(4), r(4), r(4), r(4).abs() + 0.5)
    for wanted in ((True, False, False), (False, True, True)):
        back = lambda g, x, w, m, v: [
            t for t in aten.native_batch_norm_backward(g, x, w, m, v, None, None, False, 0.1, wanted)
            if t is not None]
        same(back, r(3, 4, 5), r(3, 4, 5), r(4), r(4), r(4).abs(), grad=False)
half, w = torch.randn(3, 4, 5).bfloat16(), torch.rand(4)
same(lambda x, w: F.batch_norm(x, w.detach(), w.detach(), w, w), half, w)
ran("native_batch_norm_backward", "_batch_norm_with_update", "_batch_norm_no_update")
ran("batch_norm_backward")
assert all(row[1] for row in _C._native_calls()["aten::native_batch_norm_backward"][:2])
