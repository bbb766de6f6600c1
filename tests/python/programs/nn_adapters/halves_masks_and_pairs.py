# SPDX-License-Identifier: Apache-2.0
for dtype in DTYPES:
    r = data(dtype)
    for dim in (0, 1, -1):
        same(lambda x: F.glu(x, dim), r(4, 6, 2))
        same(lambda x: F.glu(x.transpose(0, 1), dim), r(6, 4, 2))
    same(lambda x: F.glu(x), r(0, 4))
    for x in (r(3, 4), r(4, 3).t(), r(3, 8)[:, ::2], r(0, 3)):
        same(F.logsigmoid, x)
        same(F.mish, x)
        mantissa, exponent = torch.frexp(x.npu())
        want = torch.frexp(x)
        assert mantissa.cpu().equal(want.mantissa) and exponent.cpu().equal(want.exponent)
        assert mantissa.stride() == want.mantissa.stride()
    same(lambda x, w: F.prelu(x, w), r(3, 4, 5), r(4))
    same(lambda x, w: F.prelu(x.transpose(0, 2), w), r(3, 4, 5), r(1))
    if dtype is not torch.bfloat16:
        same(torch.complex, r(3, 4), r(4), grad=False, tolerance=1e-6)
    mask = torch.rand(4, 6) > 0.4
    back = lambda g, m: aten.native_dropout_backward(g, m, 1.7)
    same(back, r(4, 6), mask, grad=False)
    same(back, r(6, 4).t(), mask, grad=False)
    same(back, r(1).expand(4, 6), mask, grad=False)
for dtype in (torch.float32, torch.float64):
    r = data(dtype)
    same(lambda a, b: torch.view_as_real(torch.complex(a, b)), r(3, 4), r(4))
    same(lambda a, b: torch.view_as_real(torch.polar(a, b)), r(3, 4).t().abs(), r(4, 3))
    x, y = r(4, 6).npu(), r(3, 4).npu()
    out = torch.empty(4, 3, dtype=dtype, device="npu")
    torch.testing.assert_close(aten.glu.out(x, 1, out=out).cpu(), F.glu(x.cpu(), 1))
    out = torch.empty(4, 6, dtype=dtype, device="npu")
    g = torch.ones(4, 3, dtype=dtype)
    aten.glu_backward.grad_input(g.npu(), x, 1, grad_input=out)
    torch.testing.assert_close(out.cpu(), aten.glu_backward(g, x.cpu(), 1))
    for fn in (torch.complex, torch.polar):
        made = torch.empty(0, dtype=dtype.to_complex(), device="npu")
        torch.testing.assert_close(fn(y, y, out=made).cpu(), fn(y.cpu(), y.cpu()))
ran("glu", "glu.out", "glu_backward", "glu_backward.grad_input", "_prelu_kernel")
ran("_prelu_kernel_backward", "complex", "complex.out", "polar", "polar.out")
ran("native_dropout_backward", "log_sigmoid_forward", "log_sigmoid_backward", "mish_backward")
out = torch.empty(3, device="npu"), torch.empty(3, dtype=torch.int32, device="npu")
torch.frexp(torch.tensor([1.5, -3, 0], device="npu"), out=out)
assert out[0].tolist() == [0.75, -0.75, 0] and out[1].tolist() == [1, 2, 0]
ran("frexp.Tensor", "frexp.Tensor_out")
grad = torch.full((2,), float("inf"), device="npu")
back = aten.native_dropout_backward(grad, torch.tensor([True, False], device="npu"), 2.0)
assert back.tolist() == [float("inf"), 0]  # dropped is 0, not NaN
