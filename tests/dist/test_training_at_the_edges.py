# SPDX-License-Identifier: Apache-2.0
"""Uneven inputs, older and newer ways to shard, stages, checkpoints, objects: against one process on the CPU."""

import copy

import torch
import torch.distributed as dist
from test_parallel_training import batch, close, model, step, trained_alone
from torch.nn.parallel import DistributedDataParallel as DDP


def loss_of(net, x, y):
    return torch.nn.functional.mse_loss(net(x), y)


def uneven(rank, size):
    """join(): rank r has r + 1 batches. A gradient is what the ranks still there have, over all ranks."""
    net = DDP(model().to("npu"))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with net.join():
        for number in range(rank + 1):
            x, y = batch(10 * rank + number)
            optimizer.zero_grad()
            loss_of(net, x.to("npu"), y.to("npu")).backward()
            optimizer.step()
    alone = model()
    for number in range(size):
        total = [torch.zeros_like(p) for p in alone.parameters()]
        for other in range(number, size):
            one = copy.deepcopy(alone)
            loss_of(one, *batch(10 * other + number)).backward()
            for sum_of, p in zip(total, one.parameters(), strict=True):
                sum_of += p.grad
        with torch.no_grad():
            for p, gradient in zip(alone.parameters(), total, strict=True):
                p -= 0.1 * gradient / size
    close(dict(net.module.named_parameters()), {n: p.detach() for n, p in alone.named_parameters()})


def test_uneven_inputs(four):
    four.run(uneven)


def fsdp1(rank, size):
    from torch.distributed.fsdp import FullStateDictConfig, FullyShardedDataParallel, StateDictType

    device = torch.device("npu", torch.npu.current_device())
    net = FullyShardedDataParallel(model().to(device), device_id=device, use_orig_params=True)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for number in range(3):
        step(net, optimizer, number, rank, size)
    whole = FullStateDictConfig(offload_to_cpu=True)
    with FullyShardedDataParallel.state_dict_type(net, StateDictType.FULL_STATE_DICT, whole):
        close(net.state_dict(), trained_alone(3))


def test_fsdp1(four):
    four.run(fsdp1)


def checkpoints(rank, size, folder):
    """Saved while training goes on, loaded into another model."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_state_dict,
        set_state_dict,
    )
    from torch.distributed.fsdp import fully_shard

    def made():
        net = fully_shard(model().to("npu"))
        return net, torch.optim.AdamW(net.parameters(), lr=0.01)

    net, optimizer = made()
    for number in range(2):
        step(net, optimizer, number, rank, size)
    weights, moments = get_state_dict(net, optimizer)
    saving = dcp.async_save({"model": weights, "optimizer": moments}, checkpoint_id=folder)
    step(net, optimizer, 7, rank, size)  # not in the checkpoint
    saving.result()
    net, optimizer = made()
    weights, moments = get_state_dict(net, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=folder)
    set_state_dict(net, optimizer, model_state_dict=weights, optim_state_dict=moments)
    step(net, optimizer, 2, rank, size)
    whole = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
    close(whole, trained_alone(3))


def test_checkpoints(four, tmp_path):
    four.run(checkpoints, str(tmp_path / "saved"))


def stages(rank, size):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    torch.manual_seed(0)
    layers = [torch.nn.Linear(8, 8) for _ in range(size)]
    device = torch.device("npu", torch.npu.current_device())
    x, y = torch.randn(8, 8), torch.randn(8, 8)
    alone = torch.nn.Sequential(*copy.deepcopy(layers))
    loss_of(alone, x, y).backward()
    for schedule in (ScheduleGPipe, Schedule1F1B):
        mine = copy.deepcopy(layers[rank]).to(device)
        runs = schedule(PipelineStage(mine, rank, size, device), 4, torch.nn.functional.mse_loss)
        given = (x.to(device),) if rank == 0 else ()
        last = {"target": y.to(device)} if rank == size - 1 else {}
        out = runs.step(*given, **last)
        if rank == size - 1:
            torch.testing.assert_close(out.cpu(), alone(x))
        close({"w": mine.weight.grad}, {"w": alone[rank].weight.grad})


def test_pipeline_stages(four):
    four.run(stages)


def objects(rank, size):
    box = [{"of": 1}] if rank == 1 else [None]
    dist.broadcast_object_list(box, 1)
    assert box == [{"of": 1}]
    found = [None] * size if rank == 2 else None
    dist.gather_object(("x", rank), found, 2)
    assert rank != 2 or found == [("x", r) for r in range(size)]
    got = [None]
    dist.scatter_object_list(got, list("abcd") if rank == 0 else None, 0)
    assert got == ["abcd"[rank]]
    box = [torch.ones(3, device="npu") * 5] if rank == 0 else [None]
    dist.broadcast_object_list(box, 0, device=torch.device("npu"))
    assert box[0].device.type == "npu" and box[0].tolist() == [5.0] * 3
    if rank == 0:
        dist.send_object_list([1, "x"], 3)
    if rank == 3:
        dist.recv_object_list(got := [None, None], 0)
        assert got == [1, "x"]


def test_objects(four):
    four.run(objects)


def scaled(rank, size):
    """An inf on one rank: every rank skips the step and halves its scale."""
    net = DDP(model().to("npu"))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("npu", init_scale=4.0, growth_interval=100)
    kept = []
    for number in range(3):
        x, y = batch(number)
        optimizer.zero_grad()
        with torch.autocast("npu", dtype=torch.float16):
            loss = loss_of(net, x.to("npu"), y.to("npu"))
        if number == 1 and rank == 2:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        kept.append([p.detach().clone() for p in net.parameters()])
    assert scaler.get_scale() == 2.0
    same = [torch.equal(a, b) for a, b in zip(kept[0], kept[1], strict=True)]
    moved = [not torch.equal(a, b) for a, b in zip(kept[1], kept[2], strict=True)]
    assert all(same) and all(moved)


def test_a_loss_scale_over_ranks(four):
    four.run(scaled)
