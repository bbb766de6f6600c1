# SPDX-License-Identifier: Apache-2.0
shapes = [((8, 8), (8,)), ((8,), (8, 8)), ((4, 1), (1, 5)), ((2, 3, 4), (3, 1)), ((2, 3, 4), (2, 1, 4)),
          ((3,), ()), ((), (2, 2)), ((1, 3), (3,)), ((2, 1, 1, 5), (3, 4, 1)), ((1, 1), (1,)),
          ((2, 1) * 4, (1, 3) * 4)]
for left, right in shapes:
    a, b = torch.randn(left), torch.randn(right)
    for name in ("add", "mul", "maximum", "atan2"):
        op = getattr(torch, name)
        want, got = op(a, b), op(a.npu(), b.npu())
        assert got.stride() == want.stride(), (left, right, got.stride(), want.stride())
        close(got, want)
    close(ran("addcmul", lambda: torch.addcmul(a.npu(), b.npu(), a.npu())), torch.addcmul(a, b, a))
x = torch.randn(2, 3)
close(ran("mul_.Tensor", lambda: x.npu().mul_(torch.ones(3, device="npu"))), x)
odd = torch.randn(6).as_strided((2, 1, 3), (3, 1, 1))
assert (odd.npu() + torch.ones(1, 2, 1, device="npu")).stride() == (odd + torch.ones(1, 2, 1)).stride()
for left, right in (((3,), (1, 3)), ((3,), (2, 3)), ((1, 3), (2, 3))):
    a, b = torch.randn(left), torch.randn(right)
    for device in ("cpu", "npu"):
        try:
            a.to(device).clone().add_(b.to(device))
            raise AssertionError((left, right, device))
        except RuntimeError as error:
            assert "doesn't match the broadcast shape" in str(error), error
shared = torch.arange(6.0, device="npu")
got = shared.view(2, 3).clone().mul_(shared[:3])
close(got, torch.arange(6.0).view(2, 3) * torch.arange(3.0))
