# SPDX-License-Identifier: Apache-2.0
"""torch.npu.Stream and Event: torch_npu's attributes on PyTorch's own."""

import re

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
    with pytest.raises(RuntimeError):
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
        with pytest.raises(RuntimeError, match=f"NPUStream::{name}"):
            call()
    with pytest.raises(RuntimeError, match="NPUStream::record"):
        s.record_event()
    with pytest.raises(RuntimeError, match="external stream"):
        torch.npu.set_stream(s)


def test_record_stream():
    s = torch.npu.Stream()
    x = torch.ones(100, device="npu")
    with torch.npu.stream(s):
        y = x * 2
        x.record_stream(s)
    del x
    s.synchronize()
    assert y.sum().item() == 200
