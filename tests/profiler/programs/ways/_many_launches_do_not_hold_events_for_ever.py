# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
from torch.profiler import ProfilerActivity, profile
x = torch.ones(16, device="npu")
x + x
with profile(activities=[ProfilerActivity.PrivateUse1]) as prof:
    for _ in range(4000):
        x + x
kernels = [e for e in prof.events() if e.name == "binary.add"]
assert len(kernels) == 4000, len(kernels)
