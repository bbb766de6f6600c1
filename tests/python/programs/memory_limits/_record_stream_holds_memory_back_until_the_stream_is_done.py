# SPDX-License-Identifier: Apache-2.0
import time, torch, torch_npu
side = torch.npu.Stream()
x = torch.zeros(1000, device="npu")
torch.npu.synchronize()
with torch.npu.stream(side):
    y = x.clone()
    for _ in range(20):
        y.copy_(x)
x.record_stream(side)
address = x.data_ptr()
active = torch.npu.memory_stats()["active.all.current"]
del x
assert torch.npu.memory_stats()["active.all.current"] == active
z = torch.full((1000,), 5.0, device="npu")
assert z.data_ptr() != address
side.synchronize()
assert y.cpu().eq(0).all()
w = torch.empty(1000, device="npu")
assert w.data_ptr() == address
print("held back")
