# SPDX-License-Identifier: Apache-2.0
import sys, time, torch, torch_npu, torch.distributed as dist
from datetime import timedelta
torch.set_num_threads(1)
rank, form = int(sys.argv[1]), sys.argv[3]
dist.init_process_group("hccl", init_method="file://" + sys.argv[2], rank=rank, world_size=2, timeout=timedelta(seconds=60))
x = torch.ones(1000, device="npu")
dist.all_reduce(x)
if form == "callbacks":
    for _ in range(20):
        work = dist.all_reduce(x.clone(), async_op=True)
        work.get_future().then(lambda future: time.sleep(0.01))
elif rank == 0:
    dist.all_reduce(x, async_op=True)  # rank 1 never comes to it
