# SPDX-License-Identifier: Apache-2.0
"""Ranks that die, stop or never come: the others say which, in time, and nothing is left behind."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from ranks import ranks


def pid(rank, size):
    dist.all_reduce(torch.ones(1, device="npu"))
    return os.getpid()


def keep_on(rank, size):
    """The text of the error, and after how long it came."""
    began = time.monotonic()
    x = torch.ones(4, device="npu")
    try:
        while True:
            dist.all_reduce(x)
            time.sleep(0.01)
    except dist.DistBackendError as error:
        text = str(error)
    try:
        dist.all_reduce(x)
        again = ""
    except dist.DistBackendError as error:
        again = str(error)
    return text, time.monotonic() - began, again


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_a_lost_rank_is_named(sign):
    with ranks(3, timeout=3) as made:
        pids = made.run(pid)
        made.start(keep_on)
        time.sleep(0.5)
        os.kill(pids[1], sign)
        for text, seconds, again in made.results([0, 2], limit=30):
            assert (
                f"rank 1 (process {pids[1]})" in text.lower() and "all_reduce SUM Float [4]" in text
            )
            assert ("has ended" if sign == signal.SIGKILL else "is stopped") in text
            # The call's own three seconds, not the minute that the start had; a busy machine adds to both.
            assert seconds < 20
            assert again  # the group is over
        os.kill(pids[1], signal.SIGKILL) if sign == signal.SIGSTOP else None


def one_stays_away(rank, size):
    if rank == 2:
        return "", 0.0
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError) as error:
        dist.monitored_barrier() if rank == 0 else dist.barrier()
    return str(error.value), time.monotonic() - began


def test_a_rank_that_never_comes_is_named():
    with ranks(3, timeout=2) as made:
        made.run(pid)
        for text, seconds in made.run(one_stays_away)[:2]:
            assert "timed out after 2000 ms: rank 2 (process" in text and "has not come" in text
            assert "its last was call 1, all_reduce SUM Float [1]" in text
            assert 1.5 < seconds < 20  # its two seconds, not the minute that the start had


def aborted(rank, size):
    """The others never come; abort ends the wait at once, from another thread."""
    if rank != 0:
        time.sleep(1.5)
        return 0.0
    import threading

    group = dist.distributed_c10d._get_default_group()
    threading.Timer(0.3, lambda: group._get_backend(torch.device("npu")).abort()).start()
    began = time.monotonic()
    with pytest.raises(dist.DistBackendError, match="aborted"):
        dist.all_reduce(torch.ones(2, device="npu"))
    with pytest.raises(dist.DistBackendError, match="aborted or destroyed"):
        dist.all_reduce(torch.ones(2, device="npu"))
    return time.monotonic() - began


def test_abort_does_not_wait():
    with ranks(2, timeout=20) as made:
        assert made.run(aborted)[0] < 15  # without abort it takes the twenty of the time-out


def asynchronous(rank, size):
    from torch_npu.testing import testcase  # noqa: F401  # the whole package loads beside a group

    x = torch.full((1 << 16,), float(rank + 1), device="npu")
    for _ in range(20):
        x = x * 1.0
    work = dist.all_reduce(x, async_op=True)
    work.wait()  # the stream waits
    y = x * 2
    future = dist.all_reduce(y, async_op=True).get_future().then(lambda f: f.value()[0] + 1)
    z = future.wait()
    torch.npu.synchronize()
    # No wait() can raise what happens later; the group's next call does. Where it happened already, wait() does.
    with pytest.raises(dist.DistBackendError, match="disagree"):
        dist.all_reduce(torch.ones(rank + 1, device="npu"))
        torch.npu.synchronize()
        dist.all_reduce(x)
    return x[0].item(), z[-1].item()


def test_streams_are_ordered_with_collectives():
    with ranks(2, NPU_HOST_ASYNC="1") as made:
        assert made.run(asynchronous) == [(3.0, 13.0)] * 2


def test_wrong_settings_are_refused():
    with ranks(1, HCCL_EXEC_TIMEOUT="soon") as made:
        made.processes[0].join(20)
        assert made.processes[0].exitcode == 1
