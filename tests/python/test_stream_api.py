# SPDX-License-Identifier: Apache-2.0
"""torch.npu.Stream and Event: torch_npu's attributes on PyTorch's own."""

import ctypes
import re
import time

import pytest
import torch

pytestmark = pytest.mark.modes


def test_stream_text_and_ids():
    s = torch.npu.Stream()
    assert re.fullmatch(r"<torch_npu\.npu\.Stream device=npu:0 npu_stream=0x[0-9a-f]+>", repr(s))
    assert s.stream_id >> 5 == 3 and s.device_type == 20 and s.device_index == 0
    assert s.npu_stream != 0
    high = torch.npu.Stream(priority=-1)
    assert high.stream_id >> 5 == 4 and high.priority < 0
    assert isinstance(s, torch.Stream)


def test_stream_from_its_id():
    s = torch.npu.Stream()
    again = torch.npu.Stream(stream_id=s.stream_id, device_index=0, device_type=20)
    assert again == s and hash(again) == hash(s)
    with pytest.raises(RuntimeError, match="1000000 is no stream id"):
        torch.npu.Stream(stream_id=10**6, device_index=0, device_type=20)


def test_current_and_default():
    assert torch.npu.current_stream() == torch.npu.default_stream()
    s = torch.npu.Stream()
    with torch.npu.stream(s):
        assert torch.npu.current_stream() == s
        with torch.npu.stream(None):
            assert torch.npu.current_stream() == s
    assert torch.npu.current_stream() == torch.npu.default_stream()
    with s:
        assert torch.npu.current_stream() == s
    torch.npu.set_stream(s)
    assert torch.npu.current_stream() == s
    torch.npu.set_stream(torch.npu.default_stream())
    assert isinstance(torch.npu.current_stream(), torch.npu.Stream)


def test_work_on_streams():
    a, b = torch.npu.Stream(), torch.npu.Stream()
    x = torch.zeros(1000, device="npu")
    a.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(a):
        x.add_(1)
        done = a.record_event()
    assert isinstance(done, torch.npu.Event)
    b.wait_event(done)
    with torch.npu.stream(b):
        x.mul_(3)
    torch.npu.current_stream().wait_stream(b)
    assert x.sum().item() == 3000
    a.synchronize()
    assert a.query()


def test_event():
    event = torch.npu.Event(enable_timing=True)
    assert repr(event) == "<torch_npu.npu.Event uninitialized>"
    assert event.query() is True
    event.synchronize()
    event.wait()
    event.record()
    later = torch.npu.Event(enable_timing=True)
    torch.npu._sleep(2_000_000)
    later.record()
    later.synchronize()
    assert event.elapsed_time(later) > 1
    assert re.fullmatch(r"<torch_npu\.npu\.Event 0x[0-9a-f]+>", repr(event))


def test_elapsed_time_needs_timing():
    a, b = torch.npu.Event(), torch.npu.Event()
    a.record()
    b.record()
    torch.npu.synchronize()
    with pytest.raises((RuntimeError, ValueError)):
        a.elapsed_time(b)


def test_interprocess_event():
    with pytest.raises(NotImplementedError, match="interprocess"):
        torch.npu.Event(interprocess=True)


def test_external_stream_refuses_work():
    s = torch.npu.ExternalStream(0x1234)
    assert s.npu_stream == 0x1234 and s.device == torch.device("npu:0")
    for call, name in ((s.synchronize, "synchronize"), (s.query, "query")):
        with pytest.raises(RuntimeError, match=f"Cannot {name} .*NPUStream::{name}"):
            call()
    with pytest.raises(RuntimeError, match="NPUStream::record"):
        s.record_event()
    with pytest.raises(RuntimeError, match="external stream"):
        torch.npu.set_stream(s)


def test_external_stream_runs_work():
    rt = torch.npu.npurt()
    assert rt is torch.npu.npurt()
    handle = ctypes.c_void_p()
    assert rt.npuStreamCreate(ctypes.addressof(handle)) == 0 and handle.value
    s = torch.npu.ExternalStream(handle.value)
    assert isinstance(s, torch.npu.Stream) and s.npu_stream == handle.value
    assert s == torch.npu.ExternalStream(handle.value) and s != torch.npu.current_stream()
    with torch.npu.stream(s):
        assert torch.npu.current_stream().npu_stream == handle.value
        y = torch.arange(10, device="npu") + 1
        y.record_stream(s)
    torch.npu.synchronize()
    assert y.sum().item() == 55
    assert rt.npuStreamDestroy(handle.value) == 0
    del y
    with pytest.raises(RuntimeError, match="no stream id"):
        torch.npu.set_stream(s)
    assert (torch.ones(2, device="npu") + 1).tolist() == [2.0, 2.0]
    for bad in (rt.npuStreamCreate(0), rt.npuStreamDestroy(0), rt.npuStreamDestroy(handle.value)):
        assert bad != 0


def test_external_streams_run_out_with_words():
    rt = torch.npu.npurt()
    made = []
    handle = ctypes.c_void_p()
    while rt.npuStreamCreate(ctypes.addressof(handle)) == 0 and len(made) < 100:
        made.append(handle.value)
    assert len(made) == 32
    assert [rt.npuStreamDestroy(value) for value in made] == [0] * 32


def test_host_register():
    rt = torch.npu.npurt()
    x = torch.ones(4096, dtype=torch.uint8)
    assert rt.npuHostRegister(x.data_ptr(), x.numel(), 0x10000000) == 0
    assert x.is_pinned() and x[5:].is_pinned()
    assert x.npu(non_blocking=True).sum().item() == 4096
    assert rt.npuHostRegister(x.data_ptr() + 1, 5, 2) != 0
    assert rt.npuHostUnregister(x.data_ptr()) == 0
    assert not x.is_pinned()
    bad = [rt.npuHostUnregister(x.data_ptr()), rt.npuHostUnregister(0)]
    bad += [rt.npuHostRegister(0, 4096, 2), rt.npuHostRegister(x.data_ptr(), 0, 2)]
    assert all(bad)


def test_sync_launch_streams():
    s = torch.npu.Stream(is_sync_launch=True)
    again = torch.npu.Stream(
        stream_id=s.stream_id, device_index=s.device_index, device_type=s.device_type
    )
    assert again == s
    with torch.npu.stream(again):
        assert (torch.ones(2, device="npu") * 2).sum().item() == 4
    four = {torch.npu.SyncLaunchStream().stream_id for _ in range(9)}
    assert len(four) == 4 and s.stream_id in four
    for bad in (
        {"stream_id": s.stream_id + 4, "device_index": 0, "device_type": 20},
        {"stream_id": 99999, "device_index": 0, "device_type": 20},
        {"stream_id": -1, "device_index": 0, "device_type": 20},
        {"stream_id": 0, "device_index": 99, "device_type": 20},
        {"stream_id": 0, "device_index": -1, "device_type": 20},
        {"stream_id": 0, "device_index": 0, "device_type": 999},
        {"stream_id": 0, "device_index": 0, "device_type": -1},
    ):
        with pytest.raises(RuntimeError, match=r"is no stream id|Invalid device ID|device_type"):
            torch.npu.Stream(**bad)
    with pytest.raises(TypeError, match="unexpected arguments"):
        torch.npu.Stream(color="red")


def test_recorded_time():
    before = time.time_ns() // 1000
    first, second = (torch.npu.Event(enable_timing=True) for _ in range(2))
    first.record()
    torch.npu._sleep(2_000_000)
    second.record()
    times = first.recorded_time(), second.recorded_time()
    assert all(isinstance(t, int) for t in times) and times[1] - times[0] >= 1900
    assert before - 1000 < times[0] < times[1] < time.time_ns() // 1000 + 1000


def test_raw_streams():
    from torch_npu._C import _npu_getCurrentRawStream, _npu_getCurrentRawStreamNoWait

    with torch.npu.stream(torch.npu.Stream()) as _:
        handle = torch.npu.current_stream().npu_stream
        assert _npu_getCurrentRawStream(0) == _npu_getCurrentRawStreamNoWait(0) == handle


def test_record_stream():
    """What a stream still reads is not given to the next tensor."""
    s = torch.npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(s):
        for _ in range(20):
            torch.ones(100, device="npu")
        y = x * 2
        x.record_stream(s)
    del x
    torch.zeros(100, device="npu")
    s.synchronize()
    assert y.sum().item() == 200


def test_erase_stream_leaves_memory_safe():
    import torch_npu

    stream, x = torch.npu.Stream(), torch.ones(4, device="npu")
    x.record_stream(stream)
    with torch.npu.stream(stream):
        y = x * 2
    torch_npu.erase_stream(x, stream)
    del x
    stream.synchronize()
    assert y.tolist() == [2] * 4
    with pytest.raises(RuntimeError, match="expected an npu tensor, but got one on cpu"):
        torch_npu.erase_stream(torch.ones(1), stream)
    with pytest.raises(TypeError, match="expected a stream, but got int"):
        torch_npu.erase_stream(y, 3)
