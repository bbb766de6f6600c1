# SPDX-License-Identifier: Apache-2.0
import os, sys
import torch, torch.distributed as dist
os.environ["OP_TOOLS_DEVICE"] = "cpu"
import op_tools
dist.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
x = torch.full((4,), float(dist.get_rank() + 1))
observe, timing = op_tools.OpObserve(), op_tools.OpTimeMeasure()
with observe, timing:
    dist.all_reduce(x)
    y = torch.ops._c10d_functional.all_reduce(x, "sum", "0")
    y = torch.ops._c10d_functional.wait_tensor(y)
assert x.tolist() == [3.0] * 4, x
assert y.tolist() == [6.0] * 4, y
seen = {r["op"] for r in observe.records()}
assert {"c10d::allreduce_", "_c10d_functional::all_reduce"} <= seen, seen
assert any(s.op == "c10d::allreduce_" for s in timing.samples())
dist.destroy_process_group()
