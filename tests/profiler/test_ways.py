# SPDX-License-Identifier: Apache-2.0
"""Where streams are asynchronous: times from the driver's events, or from its profiler/1.

The oracle is the host: a stream that was told to sleep is late by that much, whatever any profiler says.
"""

import pytest
from faulty import built_driver

PROGRAM = """
import time, torch, torch_npu
from torch.profiler import ProfilerActivity, profile
from traces import Trace, overlaps

x = torch.ones(4096, device="npu")
y = x + x
torch.npu.synchronize()
side = torch.npu.Stream()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
    began = time.time()
    for _ in range(20):
        y = x + y
    torch.npu.synchronize()
    middle = time.time()
    torch_npu._C._sleep(1_000_000_000)  # far longer than a busy machine keeps a thread waiting
    z = x + x                      # behind the sleep
    with torch.npu.stream(side):
        w = x + x                  # not behind it
    torch.npu.synchronize()
    ended = time.time()
prof.export_chrome_trace("trace.json")
trace = Trace("trace.json")
lanes = trace.check(slack_us=1)
assert set(lanes) == {(0, 0), (0, side.stream_id)}, set(lanes)
main = sorted((w for w in lanes[0, 0] if w["cat"] == "kernel"), key=lambda w: w["ts"])
assert len(main) == 21, len(main)
assert overlaps(main, slack_us=1) == [], overlaps(main, slack_us=1)
(other,) = [w for w in lanes[0, side.stream_id] if w["cat"] == "kernel"]

# Where time begins in the file.
import json
base = int(json.load(open("trace.json")).get("baseTimeNanoseconds", 0)) / 1e9
at = lambda w: base + w["ts"] / 1e6
slack = 0.02
assert began - slack <= at(main[0]) and at(main[19]) <= middle + slack
assert at(main[20]) >= middle + 1.0 - slack, at(main[20]) - middle
assert at(main[20]) <= ended + slack
assert at(other) < at(main[20]), at(other) - middle
launch = trace.launches[main[20]["args"]["correlation"]]
assert main[20]["ts"] - launch["ts"] > 100_000   # the host did not wait
assert torch.equal(z.cpu(), torch.full((4096,), 2.0))
"""


@pytest.fixture
def discrete():
    return {"NPU_DRIVER": built_driver("discrete"), "NPU_FALLBACK": "silent"}


def test_host_driver_with_streams(run_code):
    run_code(PROGRAM, NPU_HOST_ASYNC="1", NPU_HOST_DELAY_US="50")


def test_events_of_a_driver(run_code, discrete):
    run_code(PROGRAM, **discrete)


def test_a_drivers_own_records(run_code, discrete):
    """Its clock is hours off and runs fast: times are the host's all the same."""
    run_code(PROGRAM, NPU_DISCRETE_PROFILER="1", **discrete)


def test_copies_are_recorded_by_the_driver(run_code, discrete):
    run_code(
        """
        import torch, torch_npu
        from torch.profiler import ProfilerActivity, profile
        from traces import Trace
        x = torch.ones(1000)
        torch.ones(1, device="npu").cpu()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
            y = x.to("npu")
            z = torch.ones(2000).to("npu")
            y.cpu()
        prof.export_chrome_trace("trace.json")
        trace = Trace("trace.json")
        trace.check(slack_us=1)
        copies = [(w["name"], w["args"]["bytes"]) for w in sorted(trace.of("gpu_memcpy"), key=lambda w: w["ts"])]
        assert copies == [("Memcpy HtoD", 4000), ("Memcpy HtoD", 8000), ("Memcpy DtoH", 4000)], copies
        """,
        NPU_DISCRETE_PROFILER="1",
        NPU_DISCRETE_DELAY_US="2000",
        **discrete,
    )


def test_many_launches_do_not_hold_events_for_ever(run_code, discrete):
    """4,000 launches are far more than the events kept; every one of them is in the trace."""
    run_code(
        """
        import torch, torch_npu
        from torch.profiler import ProfilerActivity, profile
        x = torch.ones(16, device="npu")
        x + x
        with profile(activities=[ProfilerActivity.PrivateUse1]) as prof:
            for _ in range(4000):
                x + x
        kernels = [e for e in prof.events() if e.name == "binary.add"]
        assert len(kernels) == 4000, len(kernels)
        """,
        **discrete,
    )


def test_an_error_of_queued_work_is_still_the_users(run_code, discrete):
    done = run_code(
        """
        import torch, torch_npu
        from torch.profiler import ProfilerActivity, profile
        x = torch.ones(16, device="npu")
        bad = torch.tensor([99], device="npu")
        torch.npu.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
            torch.take(x, bad)
        """,
        check=False,
        **discrete,
    )
    assert done.returncode != 0
    assert "index out of range: 99" in done.stderr


def test_fork_inside_of_a_profile(run_code):
    run_code(
        """
        import os, torch, torch_npu
        from torch.profiler import ProfilerActivity, profile
        from traces import Trace
        x = torch.ones(16, device="npu")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as prof:
            x + 1
            child = os.fork()
            if child == 0:
                try:
                    x + 1
                except RuntimeError as error:
                    os._exit(7 if "forked" in str(error) else 8)
                os._exit(9)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            x + 1
        prof.export_chrome_trace("trace.json")
        trace = Trace("trace.json")
        trace.check()
        assert len(trace.of("kernel")) == 2
        """
    )
