# SPDX-License-Identifier: Apache-2.0
for dtype in DTYPES:
    r = data(dtype)
    same(lambda x, w: F.rms_norm(x, [4, 5], w), r(3, 4, 5), r(4, 5))
    same(lambda x: F.rms_norm(x.transpose(0, 1), [5], eps=0.1), r(3, 4, 5))
    same(lambda x, w: F.rms_norm(x, [5], w), r(3, 4, 10)[..., ::2], r(5))
    same(lambda x: F.rms_norm(x, [5]), r(3, 5) * 1e-4)  # eps matters
    same(lambda x, w: F.rms_norm(x, [5], w), r(0, 5), r(5))
same(lambda x, w: F.rms_norm(x, [5], w), torch.randn(3, 5).bfloat16(), torch.randn(5), grad=False)
x = torch.randn(3, 5, dtype=torch.float64, device="npu", requires_grad=True)
w = torch.randn(5, dtype=torch.float64, device="npu", requires_grad=True)
norm = lambda x, w: F.rms_norm(x, [5], w)
assert torch.autograd.gradcheck(norm, (x, w)) and torch.autograd.gradgradcheck(norm, (x, w))
