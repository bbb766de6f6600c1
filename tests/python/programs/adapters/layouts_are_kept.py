# SPDX-License-Identifier: Apache-2.0
a = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
b = torch.randn(2, 3, 4, 5)
x, y = a.npu(), b.npu()
assert x.stride() == a.stride()
close(ran("exp", lambda: torch.exp(x)), torch.exp(a))
close(ran("add.Tensor", lambda: x + x), a + a)
close(ran("add.Tensor", lambda: x + y), a + b)
close(ran("add.Tensor", lambda: y + x), b + a)
close(ran("mul.Tensor", lambda: y.transpose(1, 3) * 2), b.transpose(1, 3) * 2)
close(ran("mul.Tensor", lambda: y[:, ::2, :, 1:] * x[:, ::2, :, 1:]), b[:, ::2, :, 1:] * a[:, ::2, :, 1:])
v = y[:, 1]
ran("mul_.Tensor", lambda: v.mul_(2))
w = b[:, 1]
w.mul_(2)
close(y, b)
