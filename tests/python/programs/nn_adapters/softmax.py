# SPDX-License-Identifier: Apache-2.0
for dtype in DTYPES:
    r = data(dtype)
    for dim in (0, 1, -1):
        same(lambda x: torch.softmax(x, dim), r(3, 4, 5))
        same(lambda x: torch.log_softmax(x, dim), r(3, 4, 5).transpose(0, 2))
    same(lambda x: torch.softmax(x, 0), r(1)[0])
    same(lambda x, m: aten._masked_softmax(x, m, 1, 2), r(3, 4), torch.rand(3, 4) > 0.7, grad=False)
ran("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data")
ran("_masked_softmax")
x, out = torch.randn(3, 4), torch.empty(0)
aten._softmax.out(x.npu(), 1, False, out=(got := out.npu()))
torch.testing.assert_close(got.cpu(), torch.softmax(x, 1))
ran("_softmax.out")
