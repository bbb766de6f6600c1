# SPDX-License-Identifier: Apache-2.0
import os

nan = torch.full((64, 64), float("nan"))
flags = open("/proc/cpuinfo").read() if os.path.exists("/proc/cpuinfo") else ""
# oneDNN's products leave results unwritten when alpha is 0: they differ from run to run.
unwritten = {torch.bfloat16} | (
    {torch.float16} if "avx512_fp16" in flags or "amx_fp16" in flags else set()
)
for n in (3, 64):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64):
        if n == 64 and dtype in unwritten:
            continue

        def products(dev):
            a, c = nan[:n, :n].to(dev, dtype), torch.ones(n, n).to(dev, dtype)
            for beta in (0, 1):
                yield torch.addmm(c, a, c, beta=beta, alpha=0)
                yield torch.addmv(c[0], a, c[0], beta=beta, alpha=0)
                yield torch.baddbmm(c[None], a[None], c[None], beta=beta, alpha=0.0)
                if dtype not in (
                    torch.float16,
                    torch.bfloat16,
                ):  # computed in float32: ops/wide.yaml
                    yield torch.addbmm(c, a[None], c[None], beta=beta, alpha=0)

        for want, got in zip(products("cpu"), products("npu"), strict=True):
            assert torch.equal(want.isnan(), got.cpu().isnan()), (n, dtype)

x, far = torch.zeros(3, 4, device="npu"), torch.tensor([0, 1], device="npu:1")
for index in (far, far > 0):
    for use in (lambda: x[index], lambda: x.index_put_((index,), x[0])):
        try:
            use()
        except RuntimeError:
            pass
        else:
            raise AssertionError(index)
assert torch.equal(x[far.cpu()].cpu(), torch.zeros(2, 4))

for base in (2, 2.1, -2.5, True, 0, 1):
    for exponent in (
        torch.randn(3, 4).t(),
        torch.arange(-3, 5),
        torch.ones(5).half(),
        torch.randn(4).bfloat16(),
    ):
        want = torch.pow(base, exponent)
        if want.dtype == exponent.dtype:
            close(ran("pow.Scalar", lambda: torch.pow(base, exponent.npu())), want)
        else:
            close(torch.pow(base, exponent.npu()), want)
close(
    torch.pow(300, torch.ones(3, dtype=torch.uint8).npu()),
    torch.pow(300, torch.ones(3, dtype=torch.uint8)),
)
out = torch.empty(12, device="npu")
assert torch.pow(3.0, torch.ones(3, 4, device="npu"), out=out) is out and out.shape == (3, 4)
