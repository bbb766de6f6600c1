# SPDX-License-Identifier: Apache-2.0
import json, torch, torch_npu
x, w = torch.ones(4, 8, 64, 64, dtype=torch.float16).npu(), torch.ones(8, 8, 3, 3, dtype=torch.float16).npu()
torch.nn.functional.conv2d(x, w, padding=1)
before = torch.npu.memory_allocated()
torch.npu.reset_peak_memory_stats()
drivers = []
for _ in range(5):
    torch.nn.functional.conv2d(x, w, padding=1)
    drivers.append(torch.npu.memory_stats()["num_device_alloc"])
print(json.dumps([torch.npu.memory_allocated() - before, torch.npu.max_memory_allocated() - before, drivers]))
