# SPDX-License-Identifier: Apache-2.0
"""Collectives on a driver's own communicators (comm/1), which tests/drivers/discrete has over shared memory."""

import gc
import json
import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from ranks import ranks
from test_collectives import all_moves, all_reductions, corners, dimensions_of_one, groups

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from faulty import built_driver


def discrete(**more):
    return {
        "NPU_DRIVER": built_driver("discrete"),
        "NPU_DISCRETE_COMM": "1",
        "NPU_FALLBACK": "silent",
        **more,
    }


@pytest.fixture(scope="module")
def on_driver():
    """Four ranks on two devices."""
    with ranks(4, "cpu:gloo,npu:hccl", **discrete()) as made:
        yield made


def transports(rank, size):
    from torch_npu.distributed import collective_transports

    return collective_transports()


# float32 and int32 the driver reduces itself, bfloat16 and bool as wider numbers, complex64 as pairs; int8 it does not.
REDUCED = [torch.float32, torch.int32, torch.bfloat16, torch.uint64, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", [*REDUCED, torch.int8], ids=str)
def test_reductions(on_driver, dtype):
    before = on_driver.run(transports)[0].get("all_reduce", {})
    on_driver.run(all_reductions, dtype)
    after = on_driver.run(transports)[0]["all_reduce"]
    used = {kind: n - before.get(kind, 0) for kind, n in after.items()}
    # BXOR is what the driver lacks.
    whole = dtype in (torch.int32, torch.uint64)
    assert used.get("driver", 0) > 0 if dtype in REDUCED else not used.get("driver")
    assert used.get("staged", 0) == (2 if whole else 0 if dtype in REDUCED else used["staged"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.complex64], ids=str)
def test_moves(on_driver, dtype):
    on_driver.run(all_moves, dtype)
    used = on_driver.run(transports)
    for name in ("broadcast", "all_gather", "gather", "scatter", "all_to_all", "all_to_all_single"):
        assert all(list(of_rank[name]) == ["driver"] for of_rank in used), (name, used[0])


def test_corners_and_groups(on_driver):
    on_driver.run(corners)
    on_driver.run(dimensions_of_one)
    on_driver.run(groups)


def test_a_check_before_the_driver_gets_a_call_leaves_the_group_usable():
    with ranks(2, **discrete(NPU_COLLECTIVES_CHECK="1")) as made:
        made.run(disagrees)
        assert made.run(transports)[0]["all_reduce"] == {"driver": 3}


def disagrees(rank, size):
    x = torch.ones(4, device="npu")
    dist.all_reduce(x)
    with pytest.raises(dist.DistBackendError, match="disagree on call"):
        dist.all_reduce(torch.ones(rank + 1, device="npu"))
        torch.npu.synchronize()
        dist.all_reduce(x)  # where streams wait, the group's next call raises it
    dist.all_reduce(x)  # the group goes on
    torch.npu.synchronize()
    dist.all_reduce(x)
    assert x.tolist() == [8.0] * 4


def disagrees_in_flight(rank, size, how):
    """Rank 1 alone asks for something else. Every rank's error names it and says what it asked for."""
    x = torch.ones(8, device="npu")
    dist.all_reduce(x)
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError) as error:
        if rank != 1:
            work = dist.all_reduce(x, async_op=True)
        elif how == "another collective":
            work = dist.broadcast(x, 0, async_op=True)
        elif how == "another size":
            work = dist.all_reduce(x[:3], async_op=True)
        else:  # one that no communicator takes
            work = dist.all_reduce(x.to(torch.int8), async_op=True)
        work.wait(timeout=timedelta(seconds=60))
        for _ in range(100):  # the stream may go on before this rank has seen why
            dist.all_reduce(x)
            time.sleep(0.05)
    assert time.monotonic() - began < 30  # the time-out is 60 s
    return str(error.value)


@pytest.mark.parametrize("how", ["another collective", "another size", "another transport"])
def test_a_rank_that_asks_for_another_call_is_named(how):
    other = {
        "another collective": "broadcast from rank 0 Float [8]",
        "another size": "all_reduce SUM Float [3]",
        "another transport": "all_reduce SUM Char [8]",
    }[how]
    with ranks(3, timeout=60, **discrete()) as made:
        texts = made.run(disagrees_in_flight, how)
    assert all("disagree on call 2" in text and other in text for text in texts), texts
    assert all("all_reduce SUM Float [8]" in text for text in texts), texts
    assert "rank 1" in texts[0] and "rank 1" in texts[2]


def disagrees_on_parts(rank, size):
    x = torch.ones(4, device="npu")
    dist.all_reduce(x)
    parts = [[3, 1], [2, 2]][rank]  # rank 1 expects 2 rows from rank 0, which sends 1
    wanted = (
        "sends (4 bytes to rank 1, which has room for 8|8 bytes to rank 0, which has room for 4)"
    )
    with pytest.raises(dist.DistBackendError, match=wanted):
        dist.all_to_all_single(torch.empty(4, device="npu"), x, parts, parts)
        time.sleep(1)
        dist.all_reduce(x)


def test_parts_that_do_not_fit_are_named():
    with ranks(2, timeout=60, **discrete()) as made:
        made.run(disagrees_on_parts)


def sums(rank, size):
    """Large enough for many pieces; against float64. Parameters, gaps and the other device come too."""
    torch.manual_seed(0)
    every = [torch.randn(300_001) for _ in range(size)]
    wanted = torch.stack(every).double().sum(0)
    bound = torch.stack(every).abs().double().sum(0) * size * 2**-24
    mine = torch.nn.Parameter(every[rank].npu())
    dist.all_reduce(mine)
    assert ((mine.detach().cpu().double() - wanted).abs() <= bound).all()
    gaps = torch.zeros(300_001, 2).npu()
    gaps[:, 1] = every[rank].npu()
    dist.all_reduce(gaps[:, 1])
    assert ((gaps[:, 1].cpu().double() - wanted).abs() <= bound).all()
    assert gaps[:, 0].eq(0).all()
    # One rank's tensor is not on the device its communicator has.
    other = (torch.npu.current_device() + (rank == 1)) % torch.npu.device_count()
    there = every[rank].to(f"npu:{other}")
    dist.all_reduce(there)
    assert ((there.cpu().double() - wanted).abs() <= bound).all()
    return mine.detach().cpu()


def test_sums_of_many_pieces(on_driver):
    found = on_driver.run(sums)
    assert all(torch.equal(found[0], of_rank) for of_rank in found)  # to the bit


def on_a_late_stream(rank, size):
    """Work before and after a collective is in order, on a stream of the program's own, again and again."""
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        for i in range(40):  # more often than there are streams to be had
            x = torch.full((1000,), float(rank + i)).npu()
            x = x + x
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            y = x + x
    torch.npu.synchronize()
    assert y.cpu().eq(4.0 * (sum(range(size)) + 39 * size)).all()


@pytest.mark.parametrize("way", ["driver", "host"])
def test_streams_that_are_late(way):
    with ranks(2, **discrete(NPU_DISCRETE_DELAY_US="500", NPU_COLLECTIVES=way)) as made:
        made.run(on_a_late_stream)
        used = made.run(transports)[0]["all_reduce"]
        assert list(used) == ["driver" if way == "driver" else "staged"]


DECLINED = "broadcast reduce all_gather all_to_all send recv"


def test_what_a_driver_declines_goes_another_way():
    with ranks(2, **discrete(NPU_DISCRETE_COMM_WITHOUT=DECLINED)) as made:
        made.run(moved)
        used = made.run(transports)[0]
    assert used == {
        "all_gather_into_tensor": {"staged": 1},
        "all_reduce": {"driver": 1},
        "all_to_all_single": {"staged": 1},
        "broadcast": {"staged": 1},
        "reduce": {"staged": 1},
        "reduce_scatter_tensor": {"driver": 1},
    }


def moved(rank, size):
    x = torch.arange(6.0).npu() + rank
    dist.all_reduce(total := x.clone())
    assert total.tolist() == [1, 3, 5, 7, 9, 11]
    dist.reduce(once := x.clone(), 1)
    assert once.tolist() == (total if rank == 1 else x).tolist()
    dist.broadcast(first := x.clone(), 0)
    assert first.tolist() == list(range(6))
    dist.all_gather_into_tensor(both := torch.empty(12, device="npu"), x)
    assert both.tolist() == [0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6]
    dist.reduce_scatter_tensor(half := torch.empty(6, device="npu"), both)
    assert half.tolist() == [2 * v for v in both[6 * rank : 6 * rank + 6].tolist()]
    dist.all_to_all_single(swapped := torch.empty(6, device="npu"), x)
    assert swapped.tolist() == [
        3 * rank,
        3 * rank + 1,
        3 * rank + 2,
        *[3 * rank + i for i in (1, 2, 3)],
    ]


def test_all_to_all_by_messages():
    with ranks(2, **discrete(NPU_DISCRETE_COMM_WITHOUT="all_to_all")) as made:
        made.run(moved)
        assert made.run(transports)[0]["all_to_all_single"] == {"driver": 1}


# ---- ranks that are lost


def wait_until_started():
    """All ranks have met at the last call, and the drivers have it (NPU_DISCRETE_DELAY_US holds them up)."""
    from torch_npu import _C

    while True:
        record = json.loads(_C._distributed_c10d._dump_hccl_trace_json())
        if record["entries"][-1]["state"] == "started":
            return
        time.sleep(0.001)


def in_flight(rank, size, sign):
    """The sum is with the drivers when rank 1 goes."""
    x = torch.ones(4, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    began = time.monotonic()
    work = dist.all_reduce(x, async_op=True)
    if rank == 1:
        wait_until_started()
        os.kill(os.getpid(), sign)
    try:
        work.wait(timeout=timedelta(seconds=30))
    except dist.DistBackendError as error:
        return str(error), time.monotonic() - began
    return "", 0.0


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_rank_lost_in_flight_is_named(sign):
    limit = 4
    with ranks(3, timeout=limit, **discrete(NPU_DISCRETE_DELAY_US="150000")) as made:
        pids = [process.pid for process in made.processes]
        made.start(in_flight, sign)
        for text, seconds in made.results([0, 2], limit=60):
            assert f"Rank 1 (process {pids[1]})" in text, text
            assert ("has ended" if sign == signal.SIGKILL else "is stopped") in text
            assert "call 2, all_reduce SUM Float [4]" in text
            assert "The driver's communicator" in text
            assert seconds < 3 * limit  # not the minute of the start
        if sign == signal.SIGSTOP:
            os.kill(pids[1], signal.SIGKILL)


def held():
    """What this process has of the memory of communicators: mappings, and files."""
    files = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n.isdigit()
             if os.path.islink(f"/proc/self/fd/{n}")]  # fmt: skip
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum("npu_discrete_comm" in line for line in [*files, *maps])


def comes_and_goes(rank, size):
    """A group that is destroyed leaves nothing of its communicator."""
    dist.all_reduce(x := torch.ones(4, device="npu"))
    torch.npu.synchronize()
    before = held()
    assert before > 0
    group = dist.new_group(list(range(size)), backend="hccl")
    dist.all_reduce(x, group=group)
    assert x.tolist() == [size * size] * 4
    assert held() > before
    dist.destroy_process_group(group)
    del group
    until = time.monotonic() + 20
    while held() > before and time.monotonic() < until:
        gc.collect()
        time.sleep(0.01)
    return held() - before


def test_nothing_is_left_of_a_group(on_driver):
    assert on_driver.run(comes_and_goes) == [0] * 4


def gives_up(rank, size):
    """Rank 0 aborts while the drivers work: that ends their work on every rank, and the devices go on."""
    x = torch.ones(4, device="npu")
    dist.all_reduce(x)
    torch.npu.synchronize()
    work = dist.all_reduce(torch.ones(4, device="npu"), async_op=True)
    if rank == 0:
        wait_until_started()
        backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("npu"))
        thread = threading.Thread(target=backend.abort)
        thread.start()
        thread.join()
    with pytest.raises(dist.DistBackendError) as error:
        work.wait(timeout=timedelta(seconds=30))
    assert (x + 1).tolist() == [3.0] * 4
    with pytest.raises(dist.DistBackendError):
        dist.all_reduce(x)
    return str(error.value)


def test_abort_ends_what_the_drivers_do():
    with ranks(2, timeout=60, **discrete(NPU_DISCRETE_DELAY_US="150000")) as made:
        mine, other = made.run(gives_up, limit=50)
        assert "was aborted" in mine
        assert "another rank gave up" in other or "was given up" in other


def trains(rank, size):
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4).npu())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.randn(16, 8)[rank::size].npu()
    for _ in range(3):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    return [p.detach().cpu() for p in model.parameters()]


def test_ddp_equals_one_process(on_driver):
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = torch.randn(16, 8)
    for _ in range(3):
        optimizer.zero_grad()
        model(rows).square().mean().backward()
        optimizer.step()
    for of_rank in on_driver.run(trains):
        torch.testing.assert_close(of_rank, [p.detach() for p in model.parameters()])
