# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
from torch.profiler import ProfilerActivity, profile
from traces import Trace
a, b = torch.ones(100, device="npu:0"), torch.ones(100, device="npu:1")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    a + 1
    b * 2
    a.to("npu:1")
prof.export_chrome_trace("trace.json")
trace = Trace("trace.json")
assert {pid for pid, _ in trace.check()} == {0, 1}
names = trace.names("process_name")
assert names[0].startswith("NPU 0") and names[1].startswith("NPU 1"), names
