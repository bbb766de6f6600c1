# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.arange(24.0).reshape(2, 3, 4)
y = x.npu()
assert y.permute(2, 0, 1)[1:].contiguous().cpu().equal(x.permute(2, 0, 1)[1:].contiguous())
assert y.to(torch.int16).cpu().equal(x.to(torch.int16))
y[:, 1, ::2] = 5
y[:, 2, 1:].copy_(torch.tensor([1, 2, 3]))
x[:, 1, ::2] = 5
x[:, 2, 1:].copy_(torch.tensor([1, 2, 3]))
assert y.cpu().equal(x)
assert torch.zeros(3, 2, device="npu").t().add(1).cpu().eq(1).all()
z = torch.randn(6, dtype=torch.complex64)
assert z.npu().conj().clone().cpu().equal(z.conj())
assert torch.full((3,), 2.5, dtype=torch.bfloat16, device="npu").tolist() == [2.5] * 3
assert z.npu()[2].item() == z[2].item()
