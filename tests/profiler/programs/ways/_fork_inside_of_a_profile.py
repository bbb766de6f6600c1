# SPDX-License-Identifier: Apache-2.0
import os, torch, torch_npu
from torch.profiler import ProfilerActivity, profile
from traces import Trace
x = torch.ones(16, device="npu")
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    x + 1
    child = os.fork()
    if child == 0:
        try:
            x + 1
        except RuntimeError as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    x + 1
prof.export_chrome_trace("trace.json")
trace = Trace("trace.json")
trace.check()
assert len(trace.of("kernel")) == 2
