# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.zeros(10, device="npu")
torch.npu.synchronize()
pending = 0
for _ in range(20):
    x.fill_(1)
    event = torch.npu.Event()
    event.record()
    pending += not event.query()
assert pending > 0
event.synchronize()
assert event.query()
