# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.zeros(1000, device="npu:0")
torch.npu.synchronize(0)
first, second = torch.Stream("npu:0"), torch.Stream("npu:1")
with first:
    x.fill_(7)
event = first.record_event()
second.wait_event(event)
second.synchronize()
assert event.query()
