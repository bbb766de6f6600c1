# SPDX-License-Identifier: Apache-2.0
import datetime, os, signal, sys, time, torch, torch_npu, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("hccl", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
torch.npu.set_device(int(os.environ["LOCAL_RANK"]))
x = torch.full((1000,), rank + 1.0, device="npu")
dist.all_reduce(x)
assert x.eq(10).all(), x
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1).npu())
rows = torch.randn(16, 8)
model(rows[rank::size].npu()).square().mean().backward()
wanted = torch.nn.Linear(8, 1)
wanted.load_state_dict({k: v.cpu() for k, v in model.module.state_dict().items()})
wanted(rows).square().mean().backward()
torch.testing.assert_close(model.module.weight.grad.cpu(), wanted.weight.grad)
if rank == 0:
    dist.send(x, size - 1)  # to the other machine
elif rank == size - 1:
    dist.recv(x, 0)
try:
    dist.all_reduce(x[: 500 + rank])
except dist.DistBackendError as error:
    assert "disagree on call" in str(error), error
print(f"rank {rank} of {size}: fine", flush=True)
if sys.argv[1] == "dies":
    dist.barrier()
    if rank == 3:
        os.kill(os.getpid(), signal.SIGSTOP)
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu"))
    backend.options._timeout = datetime.timedelta(seconds=3)
    try:
        dist.all_reduce(x)
    except dist.DistBackendError as error:
        with open(f"said_{rank}.new", "w") as file:
            file.write(f"rank {rank} says: {error}")
        os.rename(f"said_{rank}.new", f"said_{rank}")
    os._exit(0)
dist.destroy_process_group()
