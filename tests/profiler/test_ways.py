# SPDX-License-Identifier: Apache-2.0
"""Where streams are asynchronous: times from the driver's events, or from its profiler/1.

The oracle is the host: a stream that was told to sleep is late by that much, whatever any profiler says.
"""

import pytest
from faulty import built_driver
from programs import program

PROGRAM = program(__file__, "_program")


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
        program(__file__, "_copies_are_recorded_by_the_driver"),
        NPU_DISCRETE_PROFILER="1",
        NPU_DISCRETE_DELAY_US="2000",
        **discrete,
    )


def test_many_launches_do_not_hold_events_for_ever(run_code, discrete):
    """4,000 launches are far more than the events kept; every one of them is in the trace."""
    run_code(
        program(__file__, "_many_launches_do_not_hold_events_for_ever"),
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
    run_code(program(__file__, "_fork_inside_of_a_profile"))
