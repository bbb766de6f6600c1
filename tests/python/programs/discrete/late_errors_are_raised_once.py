# SPDX-License-Identifier: Apache-2.0
x = torch.randn(4, device="npu")
bad = torch.tensor([0, 9], device="npu")
y = torch.take(x, bad)
try:
    torch.npu.synchronize()
except RuntimeError as error:
    assert "index out of range: 9" in str(error), error
else:
    raise SystemExit("no error")
torch.npu.synchronize()
assert torch.equal(x.cpu() * 2, (x * 2).cpu())
