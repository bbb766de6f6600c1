# SPDX-License-Identifier: Apache-2.0
"""Events: recording, waiting, timing, what an unrecorded one does."""

import pytest
import torch
import torch_npu  # noqa: F401
from child import run_child
from programs import program

pytestmark = pytest.mark.modes

ASYNC = {"NPU_HOST_ASYNC": "1", "NPU_HOST_DELAY_US": "2000"}


@pytest.fixture(params=["torch.npu", "torch"])
def make_event(request):
    if request.param == "torch.npu":
        return lambda **kw: torch.npu.Event(**kw)
    return lambda **kw: torch.Event("npu", **kw)


def test_unrecorded_event_is_done(make_event):
    event = make_event()
    assert event.query()
    event.synchronize()
    event.wait(torch.npu.current_stream())


def test_record_and_query(make_event):
    event = make_event()
    torch.ones(10, device="npu")
    event.record()
    event.synchronize()
    assert event.query()


def test_elapsed_time_is_positive_and_grows(make_event):
    events = [make_event(enable_timing=True) for _ in range(3)]
    for event in events:
        event.record()
        torch.ones(100_000, device="npu").sum().item()
    events[2].synchronize()
    first = events[0].elapsed_time(events[1])
    assert first > 0
    assert events[0].elapsed_time(events[2]) > first


def test_elapsed_time_needs_timing_and_recording(make_event):
    with pytest.raises((RuntimeError, ValueError)):
        make_event(enable_timing=True).elapsed_time(make_event(enable_timing=True))
    plain = [make_event(), make_event()]
    for event in plain:
        event.record()
    torch.npu.synchronize()
    with pytest.raises((RuntimeError, ValueError)):
        plain[0].elapsed_time(plain[1])


def test_event_stays_with_its_device():
    run_child(
        program(__file__, "_event_stays_with_its_device"),
        NPU_HOST_DEVICES="2",
    )


def test_wait_across_devices():
    run_child(
        program(__file__, "_wait_across_devices"),
        NPU_HOST_DEVICES="2",
        **ASYNC,
    )


def test_query_tells_unfinished_work():
    run_child(
        program(__file__, "_query_tells_unfinished_work"),
        **ASYNC,
    )


def test_recording_again_moves_the_event():
    run_child(
        program(__file__, "_recording_again_moves_the_event"),
        **ASYNC,
    )
