# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
from torch.profiler import ProfilerActivity, profile
from traces import Trace
x = torch.ones(1000)
torch.ones(1, device="npu").cpu()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    y = x.to("npu")
    z = torch.ones(2000).to("npu")
    y.cpu()
prof.export_chrome_trace("trace.json")
trace = Trace("trace.json")
trace.check(slack_us=1)
copies = [(w["name"], w["args"]["bytes"]) for w in sorted(trace.of("gpu_memcpy"), key=lambda w: w["ts"])]
assert copies == [("Memcpy HtoD", 4000), ("Memcpy HtoD", 8000), ("Memcpy DtoH", 4000)], copies
