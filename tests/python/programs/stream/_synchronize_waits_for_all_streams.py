# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.zeros(4, 1000, device="npu")
torch.npu.synchronize()
streams = [torch.npu.Stream() for _ in range(4)]
for row, stream in zip(x, streams):
    with torch.npu.stream(stream):
        row.fill_(1)
torch.npu.synchronize()
assert all(s.query() for s in streams)
assert x.sum().item() == 4000
