# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
for _ in range(5):
    x = torch.zeros(1000, device="npu")
    y = torch.zeros(1000, device="npu")
    torch.npu.synchronize()
    first, second = torch.npu.Stream(), torch.npu.Stream()
    with torch.npu.stream(first):
        x.fill_(3)
    second.wait_stream(first)
    with torch.npu.stream(second):
        y.copy_(x)
    second.synchronize()
    with torch.npu.stream(second):
        assert y.tolist() == [3.0] * 1000
