# SPDX-License-Identifier: Apache-2.0
"""The stream sanitizer and collectives: a group's work is ordered by wait(), and by nothing else."""

import pytest
import torch
import torch.distributed as dist
from ranks import ranks
from test_driver_communicators import discrete
from torch.nn.parallel import DistributedDataParallel


@pytest.fixture(scope="module", params=["host", "async", "discrete"])
def two(request):
    variables = {
        "host": {},
        "async": {"NPU_HOST_ASYNC": "1"},
        "discrete": discrete(NPU_DISCRETE_DELAY_US="50", NPU_FALLBACK="silent"),
    }[request.param]
    with ranks(2, "cpu:gloo,npu:hccl", **variables) as made:
        yield made


def watched(body, *args):
    """Races that `body` ran into, as text."""
    from torch_npu.npu._sanitizer import NPUSanitizerErrors, npu_sanitizer

    npu_sanitizer.enable("raise")
    try:
        body(*args)
        return ""
    except NPUSanitizerErrors as error:
        return str(error)
    finally:
        npu_sanitizer.disable()


def use_before_wait(rank, size):
    def body():
        x = torch.ones(100, device="npu")
        work = dist.all_reduce(x, async_op=True)
        try:
            x + 1
        finally:
            work.wait()

    text = watched(body)
    assert "aten::add.Tensor reads argument 'self'" in text, text
    assert "hccl: all_reduce" in text and "by the process group" in text
    assert "Call wait() of the collective's work" in text
    assert text.count("test_group_races.py:") >= 2


def test_use_of_a_result_before_wait(two):
    two.run(use_before_wait)


def write_before_wait(rank, size):
    def body():
        x = torch.ones(100, device="npu")
        out = [torch.empty(100, device="npu") for _ in range(size)]
        work = dist.all_gather(out, x, async_op=True)
        try:
            x.zero_()
        finally:
            work.wait()

    assert "aten::zero_ writes argument 'self'" in watched(body)


def test_write_to_an_input_before_wait(two):
    two.run(write_before_wait)


def waits(rank, size):
    def body():
        x = torch.ones(100, device="npu")
        dist.all_reduce(x)
        x.mul_(2)
        works = [dist.all_reduce(t, async_op=True) for t in (x, torch.ones(3, device="npu"))]
        for work in works:
            work.wait()
        x.mul_(2)
        side = torch.npu.Stream()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            work = dist.all_reduce(x, async_op=True)
            work.wait()
            x.mul_(2)
        torch.npu.current_stream().wait_stream(side)
        future = dist.all_reduce(x, async_op=True).get_future()
        future.wait()
        x.add_(1)
        dist.barrier()

    assert watched(body) == ""


def test_waiting_orders(two):
    two.run(waits)


def other_stream_waits(rank, size):
    def body():
        x = torch.ones(100, device="npu")
        work = dist.all_reduce(x, async_op=True)
        side = torch.npu.Stream()
        with torch.npu.stream(side):
            work.wait()
        try:
            x.add_(1)  # this stream has not waited
        finally:
            work.wait()

    assert "aten::add_.Tensor writes" in watched(body)


def test_only_the_stream_that_waited_goes_on(two):
    two.run(other_stream_waits)


def train(rank, size):
    def body():
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
        ).npu()
        ddp = DistributedDataParallel(model, bucket_cap_mb=0.0001)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for _ in range(4):
            ddp(torch.randn(4, 8, device="npu")).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    assert watched(body) == ""


def test_ddp_is_right(two):
    two.run(train)
