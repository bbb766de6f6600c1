# SPDX-License-Identifier: Apache-2.0
a, b = torch.randn(4), torch.randn(4)
x, y = a.npu(), b.npu()
i = torch.arange(4)
for host, here in (
    (lambda: torch.add(a, b, out=torch.empty(4, dtype=torch.int32)),
     lambda: torch.add(x, y, out=torch.empty(4, dtype=torch.int32, device="npu"))),
    (lambda: i.clone().add_(1.5), lambda: i.npu().add_(1.5)),
    (lambda: torch.ones(3).add_(torch.ones(2, 3)), lambda: torch.ones(3).npu().add_(torch.ones(2, 3).npu())),
    (lambda: torch.ones(3) + torch.ones(4), lambda: torch.ones(3).npu() + torch.ones(4).npu()),
    (lambda: a.expand(3, 4).add_(1), lambda: x.expand(3, 4).add_(1)),
    (lambda: torch.add(a[:3], 1, out=a[1:]), lambda: torch.add(x[:3], 1, out=x[1:])),
    (lambda: torch.ones(3, dtype=torch.bool) - torch.ones(3, dtype=torch.bool),
     lambda: torch.ones(3, dtype=torch.bool).npu() - torch.ones(3, dtype=torch.bool).npu()),
    (lambda: torch.add(a, b, alpha=True), lambda: torch.add(x, y, alpha=True)),
    (lambda: torch.add(a, b, alpha=1j), lambda: torch.add(x, y, alpha=1j)),
    (lambda: torch.bitwise_and(a, b), lambda: torch.bitwise_and(x, y)),
    (lambda: torch.clamp(a), lambda: torch.clamp(x)),
    (lambda: torch.relu(torch.ones(2, dtype=torch.bool)), lambda: torch.relu(torch.ones(2, dtype=torch.bool).npu())),
    (lambda: torch.polygamma(-1, a), lambda: torch.polygamma(-1, x)),
    (lambda: torch.nn.functional.softshrink(a, -1.0), lambda: torch.nn.functional.softshrink(x, -1.0)),
    (lambda: torch.celu(a, 0.0), lambda: torch.celu(x, 0.0)),
    (lambda: torch.nn.functional.gelu(a, approximate="x"), lambda: torch.nn.functional.gelu(x, approximate="x")),
):
    raises_same(host, here)
try:
    x + b
    raise AssertionError
except RuntimeError as e:
    assert "Expected all tensors to be on the same device" in str(e) and "ERR" in str(e), e
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    out = torch.empty(3, device="npu")
    torch.add(x, y, out=out)
    assert any("resized" in str(w.message) for w in seen), seen
close(out, a + b)
wide = torch.empty(4, dtype=torch.float64, device="npu")
close(torch.add(x, y, out=wide), torch.add(a, b, out=torch.empty(4, dtype=torch.float64)))
strided = torch.zeros(4, 2, device="npu")[:, 0]
assert torch.add(x, y, out=strided) is strided
torch.testing.assert_close(strided.cpu(), a + b)
