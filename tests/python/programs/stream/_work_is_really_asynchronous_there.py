# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.zeros(10, device="npu")
torch.npu.synchronize()
stream = torch.npu.Stream()
busy = False
for _ in range(20):
    with torch.npu.stream(stream):
        x.fill_(1)
    busy = busy or not stream.query()
assert busy
stream.synchronize()
assert stream.query()
