# SPDX-License-Identifier: Apache-2.0
"""backend="nccl", or npu's own hccl, on the device that is there: two processes, every collective a
script may call."""

import subprocess
import sys

import pytest
import torch
from programs import program
from test_ditorch_package import TARGETS, environment, run

# Two ranks run this: one pair of processes for all checks, which take longer to start than to run.
PROGRAM = """
import faulthandler, sys
faulthandler.dump_traceback_later(200, exit=True)
import torch, ditorch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
rank = int(sys.argv[2])
other = 1 - rank
backend = sys.argv[3]
dist.init_process_group(backend=backend, init_method="file://" + sys.argv[1], rank=rank, world_size=2)
torch.cuda.set_device(0)
def made(value, size=4): return torch.full((size,), float(value), device="cuda")
def holds(tensor, *values): assert tensor.tolist() == list(map(float, values)), tensor
{check}
dist.barrier()
dist.destroy_process_group()
"""

CHECKS = (
    """# reductions
x = made(rank + 1); dist.all_reduce(x); holds(x, 3, 3, 3, 3)
x = made(rank + 1); dist.all_reduce(x, op=dist.ReduceOp.MAX); holds(x, 2, 2, 2, 2)
x = made(rank + 1); dist.all_reduce(x, op=dist.ReduceOp.AVG); holds(x, 1.5, 1.5, 1.5, 1.5)
x = made(rank + 1); dist.reduce(x, dst=1); assert rank == 0 or x.tolist() == [3.0] * 4
x = made(rank + 1); dist.reduce(x, 0, op=dist.ReduceOp.AVG); assert rank == 1 or x.tolist() == [1.5] * 4
x = made(0); dist.reduce_scatter(x, [made(rank + 1), made(rank + 2)]); holds(x, *[3 + 2 * rank] * 4)
for name in ("reduce_scatter_tensor", "reduce_scatter_single"):
    if hasattr(dist, name):
        x = made(0); getattr(dist, name)(x, made(rank + 1, 8)); holds(x, 3, 3, 3, 3)
        x = made(0); getattr(dist, name)(x, made(rank + 1, 8), op=dist.ReduceOp.AVG); holds(x, 1.5, 1.5, 1.5, 1.5)
""",
    """# moving
x = made(rank); dist.broadcast(x, src=1); holds(x, 1, 1, 1, 1)
x = [made(9), made(9)]; dist.all_gather(x, made(rank)); holds(torch.cat(x), 0, 0, 0, 0, 1, 1, 1, 1)
x = made(9, 8); dist.all_gather_into_tensor(x, made(rank)); holds(x, 0, 0, 0, 0, 1, 1, 1, 1)
x = made(0); dist.scatter(x, [made(5), made(6)] if rank == 0 else None, src=0); holds(x, *[5 + rank] * 4)
x = [made(9), made(9)] if rank else None; dist.gather(made(rank), x, dst=1)
assert not rank or [part[0].item() for part in x] == [0, 1]
x = made(0, 2); dist.all_to_all_single(x, torch.tensor([rank * 2.0, rank * 2.0 + 1], device="cuda")); holds(x, rank, rank + 2)
x = [None, None]; dist.all_gather_object(x, {"rank": rank}); assert x == [{"rank": 0}, {"rank": 1}]
""",
    """# later
x = made(rank + 1); work = dist.all_reduce(x, async_op=True); work.wait(); holds(x, 3, 3, 3, 3)
x = made(rank + 1); work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
work.wait(); work.wait(); holds(x, 1.5, 1.5, 1.5, 1.5)
import time
from datetime import timedelta
def later(kind, finish):
    x = made(rank + 1)
    if kind == "all_reduce": work = dist.all_reduce(x, dist.ReduceOp.AVG, async_op=True)
    else:
        x = made(0); work = dist.reduce_scatter_tensor(x, made(rank + 1, 8), dist.ReduceOp.AVG, async_op=True)
    finish(work); holds(x, 1.5, 1.5, 1.5, 1.5)
    finish(work); holds(x, 1.5, 1.5, 1.5, 1.5)
def poll(work):
    while not work.is_completed(): time.sleep(0.001)
for kind in ("all_reduce", "reduce_scatter_tensor"):
    later(kind, poll)
    later(kind, lambda work: work.get_future().wait())
    later(kind, lambda work: work.wait(timedelta(seconds=60)))
    later(kind, lambda work: work.get_future().then(lambda done: done.value()).wait())
    later(kind, lambda work: (work.wait(), poll(work), work.synchronize()))
# Both send first: neither may wait for the other to receive.
sent, got = made(rank, 1 << 20), made(9, 1 << 20)
works = [dist.isend(sent, other), dist.irecv(got, other)]
for work in works: work.wait()
assert (got == other).all()
got.fill_(9)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, got, other)]): work.wait()
assert (got == other).all()
got.fill_(9); dist.recv(got, 0) if rank else dist.send(sent, 1); assert not rank or not got.any()
""",
    """# groups
assert dist.is_nccl_available() and dist.distributed_c10d.is_nccl_available()
assert dist.is_backend_available(backend)
if backend == "hccl":
    assert dist.get_backend() == "hccl"
    group = dist.new_group([0, 1], None, "cpu:gloo,npu:hccl"); x = made(1); dist.all_reduce(x, group=group); holds(x, 2, 2, 2, 2)
group = dist.new_group([0, 1], backend=backend); x = made(1); dist.all_reduce(x, group=group); holds(x, 2, 2, 2, 2)
group = dist.new_group([0, 1], None, "cpu:gloo,cuda:nccl", group_desc="a,a"); x = made(1); dist.all_reduce(x, group=group); holds(x, 2, 2, 2, 2)
x = torch.ones(1); dist.all_reduce(x, group=group); holds(x, 2)
dist.barrier(device_ids=None if ditorch.device_type == "cpu" else [0])
""",
    """# training
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[0], output_device=0)
for _ in range(2):
    model.zero_grad()
    model(made(rank + 1)).sum().backward()
    assert torch.allclose(model.module.weight.grad.cpu(), torch.full((2, 4), 1.5)), model.module.weight.grad
x = torch.ones(4, device="cuda", requires_grad=True)
y = x * 2; loss = (y * y).sum()
dist.broadcast(y.detach(), 0)  # no write to autograd
loss.backward(); holds(x.grad, 8, 8, 8, 8)
import torch.distributed._functional_collectives as functional
holds(functional.all_reduce(made(rank + 1), "sum", [0, 1]), 3, 3, 3, 3)
""",
)


@pytest.fixture(params=TARGETS)
def target(request):
    return request.param


@pytest.mark.parametrize("backend", ["nccl", "hccl"])
def test_collectives_in_two_processes(target, backend, tmp_path):
    """hccl is what ditorch's own script for such a device asks for."""
    if backend == "hccl" and target != "npu":
        pytest.skip("hccl is npu's")
    program = PROGRAM.replace("{check}", "".join(CHECKS))
    words = [str(tmp_path / "meeting")]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program, *words, str(rank), backend],
            env=environment(target),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    said = [rank.communicate(timeout=240)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)


HCCL = program(__file__, "_hccl")


def test_a_backend_that_is_not_there_is_said(target):
    """ditorch's own script asks for hccl by name: until there is one, it says what to do."""
    run(target, HCCL)


ALONE = program(__file__, "_alone")


def test_what_is_registered_is_taken_back(target):
    if target in torch.distributed.Backend.default_device_backend_map and target != "cpu":
        pytest.skip(f"PyTorch has a backend of {target}'s own")
    run(target, ALONE)
