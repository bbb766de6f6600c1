# SPDX-License-Identifier: Apache-2.0
import os, sys, torch, op_tools
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
tool = op_tools.OpCapture()
tool.start()
x = torch.full((1000,), float(rank + 1))
dist.all_reduce(x)
x.mul_(10)
gathered = [torch.zeros(2), torch.zeros(2)]
dist.all_gather(gathered, torch.full((2,), float(rank)))
work = dist.all_reduce(y := torch.full((5,), float(rank)), async_op=True)
work.wait()
y.add(1)
if rank == 0:
    dist.send(torch.full((3,), 7.0), 1)
else:
    dist.recv(torch.zeros(3), 0)
dist.barrier()
tool.stop()
print(tool.folder)
dist.destroy_process_group()
