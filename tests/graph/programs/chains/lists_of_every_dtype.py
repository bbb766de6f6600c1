# SPDX-License-Identifier: Apache-2.0
"""Numbers keep their digits beside half types, as in the list kernels; one operand is written."""
def body(xs, ys):
    a = torch._foreach_mul(xs, 0.7)
    b = torch._foreach_addcmul(a, ys, xs, value=0.3)
    c = torch._foreach_maximum(torch._foreach_add(b, ys, alpha=0.1), -0.2)
    torch._foreach_add_(xs, c)
    d = torch._foreach_div(torch._foreach_sqrt(torch._foreach_abs(c)), 3.3)
    return [*c, *torch._foreach_sub(d, xs)]

for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    def make(backend):
        xs, ys = ([torch.randn(n).to(dtype).npu() for n in (5, 1, 3000)] for _ in range(2))
        function = torch.compile(body, backend=backend)
        return lambda: (*function(xs, ys), *xs)
    compare(make, fused=6)
