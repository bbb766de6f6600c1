# SPDX-License-Identifier: Apache-2.0
"""Collectives and messages on a driver's communicator are work of streams: no host thread waits for them."""

import contextlib
import gc
import os
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import limit_calls, ranks
from test_driver_communicators import discrete, transports


@pytest.fixture(scope="module")
def two():
    """Two ranks; each item of a stream begins 50 us late."""
    with ranks(2, "cpu:gloo,npu:hccl", **discrete(NPU_DISCRETE_DELAY_US="50")) as made:
        made.run(warm)
        yield made


def warm(rank, size):
    dist.all_reduce(x := torch.ones(4, device="npu"))
    other = 1 - rank
    works = [dist.isend(x, other), dist.irecv(torch.empty_like(x), other)]
    [work.wait() for work in works]
    torch.npu.synchronize()


def store():
    return dist.distributed_c10d._get_default_store()


def calls_return_while_the_stream_is_held(rank, size):
    """Rank 1 comes late to six calls in flight; rank 0 has asked for all, waited for all, and goes on."""
    x = [torch.full((1000,), float(rank + i), device="npu") for i in range(6)]
    torch.npu.synchronize()
    if rank == 1:
        store().get("rank 0 went on")  # it asks for nothing before that
    works = [dist.all_reduce(t, async_op=True) for t in x]
    for work in works:
        work.wait()
    after = [t + t for t in x]
    if rank == 0:
        stream = torch.npu.current_stream()
        assert not any(work.is_completed() for work in works)
        assert not stream.query()  # what follows is queued behind them
        store().set("rank 0 went on", "1")
    assert [t[-1].item() for t in after] == [2.0 * (1 + 2 * i) for i in range(6)]
    assert all(work.is_completed() and work.is_success() for work in works)


def test_wait_holds_up_the_stream_and_not_the_host(two):
    two.run(calls_return_while_the_stream_is_held)


def others_go_on(rank, size):
    """A stream that did not ask goes on while a call is in flight."""
    x = torch.ones(100, device="npu")
    torch.npu.synchronize()
    if rank == 1:
        store().get("the other stream ended")
    work = dist.all_reduce(x, async_op=True)
    side = torch.npu.Stream()
    with torch.npu.stream(side):
        y = torch.full((50,), 1.0, device="npu")
        y = y + y
    side.synchronize()
    if rank == 0:
        assert not work.is_completed()
        store().set("the other stream ended", "1")
    assert y.cpu().sum().item() == 100
    work.wait()
    assert x.tolist() == [2.0] * 100


def test_compute_overlaps_with_a_call_in_flight(two):
    two.run(others_go_on)


def freed_at_once(rank, size):
    """Nothing is waited for: memory of a call in flight is not used again before it has passed."""
    for i in range(60):
        mine = torch.full((5000,), float(rank + i), device="npu")
        out = torch.empty(2 * 5000, device="npu")
        work = dist.all_gather_into_tensor(out, mine, async_op=True)
        del mine
        spoiler = torch.full((5000,), -1.0, device="npu")  # takes the block, were it free
        work.wait()
        assert out[0].item() == i and out[-1].item() == i + 1, (i, out)
        del spoiler
    for i in range(30):  # the result is dropped too
        dist.all_reduce(torch.full((3000,), float(i), device="npu"), async_op=True)
        torch.full((3000,), 7.0, device="npu")
    gaps = torch.zeros(300, 2, device="npu")
    gaps[:, 0] = rank + 1.0
    work = dist.all_reduce(gaps[:, 0], async_op=True)
    alias = gaps.view(-1)
    del gaps
    work.wait()
    assert alias[0::2].eq(3).all() and alias[1::2].eq(0).all()


def test_memory_freed_right_after_a_call(two):
    two.run(freed_at_once)


def memory_goes_back(rank, size):
    """What a call used is free again once it has passed and the Work is gone."""
    torch.npu.synchronize()
    gc.collect()
    before = torch.npu.memory_allocated()
    work = dist.all_reduce(torch.ones(1 << 16, device="npu"), async_op=True)
    work.wait()
    del work
    torch.npu.synchronize()
    until = time.monotonic() + 20
    while torch.npu.memory_allocated() > before and time.monotonic() < until:
        torch.empty(1, device="npu")  # the allocator looks at what was held back
        time.sleep(0.005)
    assert torch.npu.memory_allocated() == before


def test_memory_is_given_back(two):
    two.run(memory_goes_back)


def aliases(rank, size):
    """Input and output are the same memory, as FSDP gathers and scatters."""
    whole = torch.zeros(8, device="npu")
    mine = whole[4 * rank : 4 * rank + 4]
    mine.fill_(rank + 1.0)
    dist.all_gather_into_tensor(whole, mine)
    assert whole.tolist() == [1.0] * 4 + [2.0] * 4
    dist.reduce_scatter_tensor(mine, whole)
    assert mine.tolist() == [2.0 * (rank + 1)] * 4
    half = torch.full((6,), rank + 1, dtype=torch.bfloat16, device="npu")
    dist.all_reduce(half)
    assert half.tolist() == [3.0] * 6
    empty = torch.empty(0, device="npu")
    works = [dist.all_reduce(empty, async_op=True), dist.broadcast(empty, 0, async_op=True)]
    [work.wait() for work in works]
    dist.all_gather_into_tensor(torch.empty(0, device="npu"), empty)
    number = torch.tensor(2.0, device="npu")
    dist.all_reduce(number)
    assert number.item() == 4


def test_aliases_and_empty_tensors(two):
    two.run(aliases)


def crossing_messages(rank, size):
    """Both send first, both receive first, in order; other tags and large ones too."""
    other = 1 - rank
    for large in (4, 300_000):
        mine = torch.full((large,), rank + 1.0, device="npu")
        got = torch.zeros(large, device="npu")
        works = [dist.isend(mine, other), dist.irecv(got, other)]
        [work.wait() for work in works]
        assert got[-1].item() == other + 1
        works = [dist.irecv(got.zero_(), other), dist.isend(mine, other)]
        [work.wait() for work in works]
        assert got[-1].item() == other + 1
    ops = [
        dist.P2POp(dist.isend, mine, other),
        dist.P2POp(dist.irecv, got.zero_(), other),
    ]
    [work.wait() for work in dist.batch_isend_irecv(ops)]
    assert got[0].item() == other + 1
    for i in range(20):  # in order, none waited for by the sender
        if rank == 0:
            dist.isend(torch.full((2,), float(i), device="npu"), 1)
        else:
            box = torch.empty(2, device="npu")
            assert dist.irecv(box, 0).wait() is not False
            assert box.tolist() == [i, i]
    if rank == 0:
        works = [dist.isend(torch.tensor([t], device="npu"), 1, tag=t) for t in (1, 2)]
        [work.wait() for work in works]
    else:
        box = torch.empty(1, dtype=torch.int64, device="npu")
        for tag in (2, 1):
            dist.recv(box, 0, tag=tag)
            assert box.item() == tag
    with pytest.raises(ValueError, match="needs a tag other than 0"):
        dist.recv(got)
    dist.barrier()


def test_messages(two):
    two.run(crossing_messages)
    used = two.run(transports)
    assert used[0]["send"]["driver"] > 20 and used[1]["recv"]["driver"] > 20
    assert used[0]["send"].get("staged") == 2  # those with a tag


def two_groups(rank, size):
    """Calls of two groups are in flight at once, in another order on each rank."""
    groups = [dist.new_group([0, 1], backend="hccl") for _ in range(2)]
    for group in groups:
        dist.all_reduce(torch.ones(1, device="npu"), group=group)
    tensors = [[torch.full((500,), float(g + i), device="npu") for i in range(5)] for g in range(2)]
    works = []
    for g in (0, 1) if rank == 0 else (1, 0):
        works += [dist.all_reduce(t, group=groups[g], async_op=True) for t in tensors[g]]
    [work.wait() for work in works]
    assert [t[0].item() for t in tensors[1]] == [2.0 * (1 + i) for i in range(5)]
    for group in groups:
        dist.destroy_process_group(group)


def test_two_groups_in_flight(two):
    two.run(two_groups)


def destroyed_in_flight(rank, size):
    """A group may be destroyed while its calls are in flight: they end, and their tensors have the values."""
    group = dist.new_group([0, 1], backend="hccl")
    x = torch.full((1000,), rank + 1.0, device="npu")
    dist.all_reduce(x, group=group)
    works = [dist.all_reduce(x, group=group, async_op=True) for _ in range(5)]
    dist.destroy_process_group(group)
    assert x[0].item() == 3.0 * 2**5
    assert all(work.is_completed() for work in works)
    with pytest.raises((dist.DistBackendError, ValueError)):
        dist.all_reduce(x, group=group)
    dist.barrier()


def test_a_group_destroyed_with_work_in_flight(two):
    two.run(destroyed_in_flight)


def futures(rank, size):
    x = torch.full((100,), rank + 1.0, device="npu")
    future = dist.all_reduce(x, async_op=True).get_future()
    twice = future.then(lambda done: done.value()[0] * 2)
    assert twice.wait().tolist() == [6.0] * 100


def test_futures_follow_in_stream_order(two):
    two.run(futures)


def barriers(rank, size):
    """A barrier comes after what was asked for before it."""
    x = torch.ones(1 << 16, device="npu")
    works = [dist.all_reduce(x, async_op=True) for _ in range(10)]
    dist.barrier(device_ids=[torch.npu.current_device()])
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu"))
    backend.barrier().wait()
    assert all(work.is_completed() for work in works)


def test_barriers_follow_calls_in_flight(two):
    two.run(barriers)


def forks(rank, size):
    """A child of a rank with work in flight ends without touching its parent's group."""
    x = torch.ones(1000, device="npu")
    work = dist.all_reduce(x, async_op=True)
    child = os.fork()
    if child == 0:
        try:
            dist.all_reduce(x)
        except RuntimeError as error:
            os._exit(0 if "fork" in str(error).lower() or "child" in str(error).lower() else 3)
        os._exit(4)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    work.wait()
    assert x[0].item() == 2


def test_a_child_of_a_rank_with_work_in_flight(two):
    two.run(forks)


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def three_steps(model, rows):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()


def shards(rank, size):
    from torch.distributed.fsdp import fully_shard

    model = build().npu()
    for module in (model[0], model[2], model):
        fully_shard(module)
    three_steps(model, torch.randn(16, 8)[rank::size].npu())
    return [p.full_tensor().detach().cpu() for p in model.parameters()]


def test_fsdp2_equals_one_process(two):
    model = build()
    three_steps(model, torch.randn(16, 8))
    for of_rank in two.run(shards):
        torch.testing.assert_close(of_rank, [p.detach() for p in model.parameters()])


def sum_of_halves(rank, size):
    half = torch.tensor([256.0 if rank == 0 else 1.0] * 7, dtype=torch.bfloat16, device="npu")
    dist.all_reduce(half)
    return half.tolist()


@pytest.mark.parametrize(("switch", "wanted"), [("0", 260.0), ("1", 256.0)])
def test_halves_are_summed_in_float32_unless_the_user_prefers_fewer_bytes(switch, wanted):
    """256 + 1 + 1 + 1 is 259, which is 260 in bfloat16; rounded at every hop it stays 256."""
    halves = {"NPU_DISCRETE_COMM_HALVES": "1", "NPU_COLLECTIVES_HALVES": switch}
    with ranks(4, **discrete(**halves)) as made:
        assert made.run(sum_of_halves) == [[wanted] * 7] * 4
        assert made.run(transports)[0] == {"all_reduce": {"driver": 1}}


# ---- the time is over, a rank goes


def comes_late(rank, size):
    x = torch.ones(4, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    limit_calls(2)
    if rank == 2:
        time.sleep(6)
        return "", ""
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    y = x + 1
    torch.npu.current_stream().synchronize()  # the time-out ends it; the stream goes on
    assert y.shape == (4,)
    with pytest.raises(dist.DistBackendError) as first:
        for _ in range(2000):  # the stream may go on before this rank has seen why
            work.wait()
            time.sleep(0.01)
    with pytest.raises(dist.DistBackendError) as later:
        dist.all_reduce(x)
    return str(first.value), str(later.value)


def test_a_time_out_in_flight_names_the_rank_that_has_not_come():
    with ranks(3, **discrete()) as made:
        pids = [process.pid for process in made.processes]
        for first, later in made.run(comes_late)[:2]:
            assert f"Rank 2 (process {pids[2]}) has not come, its last was call 1" in first
            assert "call 2, all_reduce SUM Float [4]" in first and later == first


def never_sent(rank, size):
    x = torch.ones(4, device="npu")
    other = 1 - rank
    works = [dist.isend(x, other), dist.irecv(x.clone(), other)]
    [work.wait() for work in works]
    torch.npu.synchronize()
    limit_calls(2)
    if rank == 0:
        time.sleep(5)
        return ""
    with pytest.raises(dist.DistBackendError) as error:
        dist.irecv(x, 0).wait(timeout=timedelta(seconds=30))
    return str(error.value)


def test_a_message_that_is_never_sent():
    with ranks(2, **discrete()) as made:
        text = made.run(never_sent)[1]
    assert "recv from rank 0 Float [4]" in text and "timed out after 2000 ms" in text


def queues_while_another_thread_aborts(rank, size):
    """Every call either was carried out or ends with an error, also one that the driver gets meanwhile."""
    wrong = []
    for turn in range(15):
        group = dist.new_group(list(range(size)), backend="hccl")
        backend = group._get_backend(torch.device("npu"))
        dist.all_reduce(torch.ones(4, device="npu"), group=group)
        dist.barrier()  # both ranks are past it
        calls = []
        aborter = threading.Timer(turn * 1e-3, backend.abort)
        aborter.start()
        with contextlib.suppress(dist.DistBackendError):
            while True:
                x = torch.ones(64, device="npu")
                calls.append((dist.all_reduce(x, group=group, async_op=True), x))
        aborter.join()
        for work, x in calls:
            with contextlib.suppress(dist.DistBackendError):
                work.wait()
                value = x[0].item()
                wrong += [] if value == size or not work.is_success() else [(turn, value)]
    return wrong


def test_a_call_queued_during_an_abort_does_not_pass_for_done():
    with ranks(2, timeout=60, **discrete()) as made:
        assert made.run(queues_while_another_thread_aborts, limit=100) == [[], []]


def goes_on_after_a_failure(rank, size):
    """The third call fails on the device, and only events and streams say so."""
    works = [dist.all_reduce(torch.ones(4, device="npu"), async_op=True) for _ in range(3)]
    with pytest.raises(dist.DistBackendError) as error:
        for _ in range(500):
            works[2].wait()
            time.sleep(0.01)
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(torch.ones(4, device="npu"))
    return str(error.value)


def test_a_failure_that_an_event_reports_ends_the_call_with_it():
    with ranks(2, **discrete(NPU_DISCRETE_COMM_WRONG="fails")) as made:
        for text in made.run(goes_on_after_a_failure):
            assert "the link is broken" in text and "call 3, all_reduce SUM Float [4]" in text
