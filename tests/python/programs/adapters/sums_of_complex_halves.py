# SPDX-License-Identifier: Apache-2.0
"""PyTorch's CPU has none. Accelerators add and multiply them (ops/wide.yaml); the rest raises as on the CPU."""
a = torch.ones(3, 4, dtype=torch.complex32)
x = a.npu()
for f in (torch.sum, torch.prod):
    close(f(x), f(a.to(torch.complex64)).to(torch.complex32))
    close(f(x.real, dtype=torch.complex32), f(a.to(torch.complex64)).to(torch.complex32))
for f in (torch.mean, lambda t: t.cumsum(0), lambda t: t.cumprod(1), lambda t: t.logcumsumexp(1)):
    raises_same(lambda: f(a), lambda: f(x))
close(x.sum(dtype=torch.complex64), a.sum(dtype=torch.complex64))
close(torch.linalg.vector_norm(x), torch.linalg.vector_norm(a))
close(x.any(1), a.any(1))
