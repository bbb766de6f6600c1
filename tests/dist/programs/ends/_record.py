# SPDX-License-Identifier: Apache-2.0
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
import torch_npu

rank, file = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("hccl", init_method=f"file://{file}", rank=rank, world_size=2, timeout=timedelta(seconds=60))
x = torch.ones(4, device="npu")


def deep(levels):
    if levels:
        return deep(levels - 1)
    for _ in range(300):
        dist.all_reduce(x)


deep(400)  # it takes seconds to put the stacks into the record
dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu")).options._timeout = timedelta(seconds=1)
if rank == 1:
    time.sleep(300)
try:
    dist.all_reduce(x)
except dist.DistBackendError as error:
    print(error)
