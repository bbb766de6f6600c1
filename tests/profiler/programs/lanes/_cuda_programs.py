# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
from torch_npu.contrib import transfer_to_npu
from torch.profiler import ProfilerActivity, profile
from traces import Trace
x = torch.ones(100, device="cuda")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    x + 1
prof.export_chrome_trace("trace.json")
Trace("trace.json").check()
row = next(r for r in prof.key_averages() if r.key == "aten::add")
assert row.self_device_time_total > 0
