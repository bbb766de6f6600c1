# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu, torch.distributed as dist
from torch.profiler import ProfilerActivity, profile
from traces import Trace
dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
x = torch.ones(1000, device="npu")
dist.all_reduce(x)
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    x + 1
    torch.npu.synchronize()
prof.export_chrome_trace("trace.json")
trace = Trace("trace.json")
lanes = trace.check(slack_us=1)
(row,) = [lane for lane, name in trace.names("thread_name").items() if name == "collectives"]
(reduced,) = lanes[row]
assert reduced["name"] == "hccl::all_reduce", reduced
assert "c10d::allreduce_" in trace.ops[reduced["args"]["External id"]]["name"]
dist.destroy_process_group()
