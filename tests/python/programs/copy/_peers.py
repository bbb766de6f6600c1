# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.arange(24.0).reshape(4, 6)
for make in (lambda x: x, lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x[:1].expand(4, 6)):
    a = make(x.to("npu:0"))
    b = a.to("npu:1")
    assert b.device == torch.device("npu:1") and b.cpu().equal(make(x))
    assert a.to("npu:1", torch.float64).cpu().equal(make(x).double())
    c = torch.zeros(16, 16, device="npu:1")
    view = c[::2, ::2][: a.size(0), : a.size(1)]
    view.copy_(a)
    assert view.cpu().equal(make(x)) and c.cpu().sum() == make(x).sum()
z = torch.randn(5, dtype=torch.complex64)
assert z.to("npu:0").conj().to("npu:1").cpu().equal(z.conj())
assert torch.empty(3, 6, device="npu:1").copy_(x.to("npu:0")[0]).cpu().equal(x[0].expand(3, 6))
assert torch.empty(0, device="npu:0").to("npu:1").numel() == 0
try:
    torch.empty(3, device="npu:0").copy_(torch.empty(4, device="npu:1"))
except RuntimeError as error:
    assert "must match the size" in str(error)
else:
    raise AssertionError
# Both devices' streams are respected: the source is still being written when the copy is queued,
# and the target is still being read.
for i in range(10):
    a = torch.full((1 << 16,), float(i), device="npu:0")
    b = torch.zeros(1 << 16, device="npu:1")
    before = b + 0
    b.copy_(a)
    a.fill_(-1)
    assert before.cpu().eq(0).all() and b.cpu().eq(i).all(), i
