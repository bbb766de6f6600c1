# SPDX-License-Identifier: Apache-2.0
# A call that computes in a half type rounds tensors of other dtypes to it first; a number of the host keeps its digits.
torch.manual_seed(1)
rows = torch.randn(257)
wide = torch.randn(()) * 3
whole = torch.arange(250, 507)

def values(dtype, wide):
    x = rows.to(dtype)
    y = x + wide
    z = torch.maximum(y * (x.abs() + 1), wide) - x
    filled = torch.full((), 1.0808, device=x.device)
    more = (x + filled, (x * 0.5).add(whole, alpha=1), torch.where(x > wide, wide, x) * 2)
    return y, z, *more, x * 0.5 * torch.tensor(0.1, dtype=torch.float64), torch.addcmul(x, x * 2, wide)

on_cpu = {dtype: values(dtype, wide) for dtype in (torch.float16, torch.bfloat16)}
rows, whole = rows.npu(), whole.npu()

for dtype, wanted in on_cpu.items():
    def make(backend):
        step = torch.compile(lambda w: values(dtype, w), backend=backend)
        return lambda: step(wide.npu())
    compare(make)
    for i, (got, want) in enumerate(zip(run(make, off=False)[0], wanted * 4, strict=True)):
        assert same_bits(got, want), (dtype, i, got, want)
