# SPDX-License-Identifier: Apache-2.0
"""Parallel training against one process on the CPU with the whole batch."""

import copy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))


def batch(step, rows=8):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(rows, 8, generator=generator), torch.randn(rows, 4, generator=generator)


def trained_alone(steps):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
    return {name: p.detach() for name, p in net.named_parameters()}


def step(net, optimizer, number, rank, size):
    x, y = batch(number)
    part = slice(rank * 8 // size, (rank + 1) * 8 // size)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(net(x[part].to("npu")), y[part].to("npu")).backward()
    optimizer.step()


def close(got, wanted):
    for name, value in wanted.items():
        torch.testing.assert_close(got[name].cpu(), value, rtol=1e-5, atol=1e-6, msg=name)


def ddp(rank, size):
    forms = [
        {},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.0001},
    ]
    for form in forms:
        net = DDP(model().to("npu"), **form)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        for number in range(3):
            step(net, optimizer, number, rank, size)
        close(dict(net.module.named_parameters()), trained_alone(3))
    accumulated(rank, size)
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    for hook, state in (
        (default_hooks.bf16_compress_hook, None),
        (default_hooks.fp16_compress_hook, None),
        (powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)),
    ):
        net = DDP(model().to("npu"))
        net.register_comm_hook(state, hook)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        for number in range(4):
            step(net, optimizer, number, rank, size)
        assert all(p.grad.isfinite().all() for p in net.parameters())


def timed_by_ddp(rank, size):
    """DDP has a clock for the device: no warning, and the times it logs are there."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net = DDP(model().to("npu"))
        for number in range(12):  # it logs the tenth step
            x, y = batch(number)
            torch.nn.functional.mse_loss(net(x.to("npu")), y.to("npu")).backward()
    said = net._get_ddp_logging_data()
    names = ("forward_compute", "backward_compute", "backward_comm")
    return [said[f"avg_{name}_time"] for name in names]


def test_ddp_has_times(four):
    for times in four.run(timed_by_ddp):
        assert all(time > 0 for time in times), times


def accumulated(rank, size):
    """no_sync: two half batches are one batch."""
    net = DDP(model().to("npu"))
    x, y = batch(0)
    mine = range(rank, 8, size)
    with net.no_sync():
        _loss(net, x, y, mine[0]).backward()
    _loss(net, x, y, mine[1]).backward()
    alone = model()
    torch.nn.functional.mse_loss(alone(x), y).backward()
    close(
        {n: p.grad / 2 for n, p in net.module.named_parameters()},
        {n: p.grad for n, p in alone.named_parameters()},
    )


def _loss(net, x, y, row):
    return torch.nn.functional.mse_loss(net(x[row : row + 1].to("npu")), y[row : row + 1].to("npu"))


def test_ddp(four):
    four.run(ddp)


def fsdp2(rank, size):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("npu", (size,))
    for form in ({}, {"offload_policy": CPUOffloadPolicy()}):
        net = model().to("npu")
        for layer in (net[0], net[2], net):
            fully_shard(layer, mesh=mesh, **form)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        for number in range(3):
            step(net, optimizer, number, rank, size)
        whole = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
        close(whole, trained_alone(3))
    net = fully_shard(
        model().to("npu"), mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    step(net, optimizer, 0, rank, size)
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)


def test_fsdp2(four):
    four.run(fsdp2)


def others(rank, size):
    torch.manual_seed(1)
    x = torch.randn(8, 3, 4, 4)
    net = torch.nn.SyncBatchNorm(3).to("npu")
    wrapped = DDP(net)
    part = x[rank * 2 : rank * 2 + 2].to("npu")
    alone = torch.nn.BatchNorm2d(3)
    torch.testing.assert_close(wrapped(part).cpu(), alone(x)[rank * 2 : rank * 2 + 2])
    torch.testing.assert_close(net.running_var.cpu(), alone.running_var)

    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = DDP(model().to("npu"))
    optimizer = ZeroRedundancyOptimizer(
        net.parameters(), optimizer_class=torch.optim.AdamW, lr=0.01
    )
    for number in range(2):
        step(net, optimizer, number, rank, size)
    close(dict(net.module.named_parameters()), trained_alone(2))

    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    mesh = dist.device_mesh.init_device_mesh("npu", (size,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    tensor_parallel = parallelize_module(copy.deepcopy(model()).to("npu"), mesh, plan)
    x, _ = batch(0)
    torch.testing.assert_close(tensor_parallel(x.to("npu")).cpu(), model()(x))


def test_sync_batch_norm_zero_and_tensor_parallel(four):
    four.run(others)
