# SPDX-License-Identifier: Apache-2.0
a, b = torch.randn(64), torch.randn(64)
x, y = a.npu(), b.npu()
close(ran("add.Tensor", lambda: x + y), a + b)
close(ran("mul.Tensor", lambda: x * y), a * b)
close(ran("relu", lambda: torch.relu(x)), torch.relu(a))
close(ran("sub.Tensor", lambda: torch.sub(x, y, alpha=3)), torch.sub(a, b, alpha=3))
z = x.clone()
ran("add_.Tensor", lambda: z.add_(y, alpha=2))
close(z, a.clone().add_(b, alpha=2))
out = torch.empty(0, device="npu")
ran("add.out", lambda: torch.add(x, y, out=out))
close(out, a + b)
row = [r for r in _C._native_calls()["aten::add.Tensor"] if r[1]][0]
assert (row["kind"], row["code"]) == ("binary", "add"), row
