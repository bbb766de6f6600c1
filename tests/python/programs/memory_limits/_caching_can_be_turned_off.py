# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.ones(1000, dtype=torch.uint8, device="npu")
assert torch.npu.memory_allocated() == torch.npu.memory_reserved() == 1000
y = x + x
assert y.sum().item() == 2000
del x, y
assert torch.npu.memory_reserved() == 0, torch.npu.memory_reserved()
lin = torch.nn.Linear(8, 8).to("npu")
lin(torch.randn(4, 8).to("npu")).sum().backward()
print("trained")
