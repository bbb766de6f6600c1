# SPDX-License-Identifier: Apache-2.0
"""Streams: pools, ids, priorities, the current one per thread, waiting."""

import threading

import pytest
import torch
import torch_npu  # noqa: F401
from child import run_child
from programs import program

pytestmark = pytest.mark.modes

ASYNC = {"NPU_HOST_ASYNC": "1", "NPU_HOST_DELAY_US": "2000"}


def test_default_stream_is_current_and_has_id_zero():
    stream = torch.npu.current_stream()
    assert stream == torch.npu.default_stream()
    assert (stream.stream_id, stream.device_index, stream.device_type) == (0, 0, 20)


@pytest.mark.parametrize("priority, pool", [(0, 3), (-1, 4), (-5, 4), (1, 3)])
def test_stream_ids_name_their_pool(priority, pool):
    stream = torch.npu.Stream(priority=priority)
    assert stream.stream_id >> 5 == pool
    assert stream.npu_stream != 0


def test_pool_is_handed_out_round_robin():
    ids = [torch.npu.Stream().stream_id for _ in range(33)]
    assert len(set(ids[:32])) == 32
    assert ids[32] == ids[0]


def test_streams_per_device_is_honoured_and_checked():
    count = "print(len({torch.npu.Stream().stream_id for _ in range(40)}))"
    code = f"import torch, torch_npu; {count}"
    assert run_child(code, STREAMS_PER_DEVICE="8") == "8\n"
    run_child(
        """
        import torch, torch_npu
        try:
            torch.npu.Stream()
        except ValueError as e:
            assert "STREAMS_PER_DEVICE" in str(e) and "32" in str(e), e
        else:
            raise SystemExit("no error")
        """,
        STREAMS_PER_DEVICE="9",
    )


def test_current_stream_is_per_thread_and_restored():
    stream = torch.npu.Stream()
    seen = []
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        thread = threading.Thread(target=lambda: seen.append(torch.npu.current_stream().stream_id))
        thread.start()
        thread.join()
    assert seen == [0]
    assert torch.npu.current_stream().stream_id == 0


@pytest.mark.parametrize("bad", [1, 31, (5 << 5) + 4, -1, 1 << 40])
def test_bad_stream_id_is_an_error(bad):
    with pytest.raises(RuntimeError, match="stream"):
        torch.npu.Stream(stream_id=bad, device_index=0, device_type=20)


def test_generic_stream_api():
    stream = torch.Stream("npu")
    assert stream.device == torch.device("npu:0")
    with stream:
        assert torch.accelerator.current_stream() == stream
        x = torch.ones(4, device="npu") * 2
    stream.synchronize()
    assert stream.query()
    assert x.tolist() == [2.0] * 4


def test_cross_stream_wait_orders_work():
    # Work takes 2 ms to begin: without the wait the second stream reads the old values.
    run_child(
        program(__file__, "_cross_stream_wait_orders_work"),
        **ASYNC,
    )


def test_work_is_really_asynchronous_there():
    run_child(
        program(__file__, "_work_is_really_asynchronous_there"),
        **ASYNC,
    )


def test_synchronize_waits_for_all_streams():
    run_child(
        program(__file__, "_synchronize_waits_for_all_streams"),
        **ASYNC,
    )


def test_backward_runs_on_the_forward_stream():
    run_child(
        program(__file__, "_backward_runs_on_the_forward_stream"),
        **ASYNC,
    )


def test_what_waits_in_a_stream_takes_bounded_memory():
    """A loop that queues faster than the stream works: each call's frame names 2,000 tensors."""
    code = program(__file__, "_what_waits_in_a_stream_takes_bounded_memory")
    delay = {"NPU_HOST_ASYNC": "1", "NPU_HOST_DELAY_US": "3000"}
    unbounded = int(run_child(code, NPU_HOST_QUEUE="0", **delay))
    bounded = int(run_child(code, NPU_HOST_QUEUE="16", **delay))
    assert unbounded > 16_000 and bounded < unbounded / 4, (bounded, unbounded)
