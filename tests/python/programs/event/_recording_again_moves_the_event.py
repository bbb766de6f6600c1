# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.zeros(1000, device="npu")
y = torch.zeros(1000, device="npu")
torch.npu.synchronize()
event, other = torch.npu.Event(), torch.npu.Stream()
event.record()
x.fill_(5)
event.record()
other.wait_event(event)
with torch.npu.stream(other):
    y.copy_(x)
other.synchronize()
with torch.npu.stream(other):
    assert y.tolist() == [5.0] * 1000
