# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
torch.ones(1, device="npu")
for i in range(20):
    whole = torch.full((8192,), float(i)).pin_memory()
    part = whole[4096:]
    there = part.to("npu", non_blocking=True)
    del whole, part
    torch.full((8192,), -1.0).pin_memory()
    assert there.sum().item() == 4096 * i, i
