# SPDX-License-Identifier: Apache-2.0
"""Streams and events: PyTorch's own, with torch_npu's attributes and text."""

import torch

from torch_npu import _C

from ._device import _lazy_init
from ._utils import Device, _checked_index

__all__ = [
    "Event", "ExternalEvent", "ExternalStream", "Stream", "StreamContext", "SyncLaunchStream",
    "current_stream", "default_stream", "set_stream", "stream",
]  # fmt: skip

_Base = torch.Stream  # transfer_to_npu puts another name there
_DEVICE_TYPE = 20  # c10::DeviceType::PrivateUse1


class Stream(torch.Stream):
    """A queue of work on a device; priority below zero is high."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs):
        _lazy_init()
        if "stream_id" in kwargs:
            index = kwargs.get("device_index", 0)
            _C._check_device_index(index)
            _C._stream_handle(kwargs["stream_id"], index)  # raises for an id that is no stream
            return super().__new__(
                cls,
                stream_id=kwargs["stream_id"],
                device_index=index,
                device_type=kwargs.get("device_type", _DEVICE_TYPE),
            )
        place = torch.device("npu", _checked_index(device))
        return super().__new__(cls, device=place, priority=priority)

    @property
    def npu_stream(self) -> int:
        """The driver's handle, as a number."""
        return _C._stream_handle(self.stream_id, self.device_index)

    @property
    def _as_parameter_(self):
        import ctypes

        return ctypes.c_void_p(self.npu_stream)

    @property
    def priority(self) -> int:
        return _C._stream_priority(self.stream_id, self.device_index)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return 0, -1

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_stream(self, stream) -> None:
        self.wait_event(stream.record_event())

    def set_data_preprocess_stream(self, is_data_preprocess_stream: bool = False) -> None:
        """Accepted for compatibility: a hint for Ascend's scheduler."""

    def __eq__(self, other) -> bool:
        return isinstance(other, torch.Stream) and super().__eq__(other)

    def __hash__(self) -> int:
        return hash((self.npu_stream, self.device))

    def __repr__(self) -> str:
        return f"<torch_npu.npu.Stream device={self.device} npu_stream={self.npu_stream:#x}>"


class SyncLaunchStream(Stream):
    """A stream for work launched without a task queue; ours never have one."""


class ExternalStream:
    """A stream made by somebody else, known by its handle.

    It can be named and compared. Work cannot be put on it: the driver contract
    only takes streams it made.
    """

    def __init__(self, stream_ptr: int, device: Device = None):
        self.npu_stream = int(stream_ptr)
        self.device = torch.device("npu", _checked_index(device))
        self.device_index = self.device.index
        self.device_type = _DEVICE_TYPE

    def _refuse(self, what: str):
        raise RuntimeError(
            f"NPUStream::{what} is not supported for an external stream. "
            "Use the library that made the stream."
        )

    def synchronize(self):
        self._refuse("synchronize")

    def query(self):
        self._refuse("query")

    def record_event(self, event=None):
        self._refuse("record")

    def wait_event(self, event):
        self._refuse("wait")

    def wait_stream(self, stream):
        self._refuse("wait")

    def __eq__(self, other) -> bool:
        return isinstance(other, ExternalStream) and (self.npu_stream, self.device) == (
            other.npu_stream,
            other.device,
        )

    def __hash__(self) -> int:
        return hash((self.npu_stream, self.device))

    def __repr__(self) -> str:
        return f"<torch_npu.npu.Stream device={self.device} npu_stream={self.npu_stream:#x}>"


class Event(torch.Event):
    """A point in a stream. One never recorded counts as reached."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ):
        _lazy_init()
        if interprocess:
            raise NotImplementedError(
                "torch.npu.Event: interprocess events are not supported. "
                "Synchronize in this process and tell the other one."
            )
        return super().__new__(cls, device="npu", enable_timing=enable_timing, blocking=blocking)

    @property
    def npu_event(self) -> int:
        """The driver's handle, as a number; 0 before the first record."""
        return self.event_id

    def record(self, stream=None) -> None:
        super().record(current_stream() if stream is None else stream)

    def wait(self, stream=None) -> None:
        super().wait(current_stream() if stream is None else stream)

    def elapsed_time(self, end_event) -> float:
        """Milliseconds from this event to `end_event`; both timed, recorded and done."""
        return _C._event_elapsed_time(self, end_event)

    def __repr__(self) -> str:
        if not self.npu_event:
            return "<torch_npu.npu.Event uninitialized>"
        return f"<torch_npu.npu.Event {self.npu_event:#x}>"


class ExternalEvent(Event):
    """An event that another stream of this process waits for."""

    def __new__(cls):
        return super().__new__(cls)

    def reset(self, stream=None) -> None:
        """Nothing to do: a record replaces the one before it."""


class StreamContext:
    """Makes a stream current, on its device, for the length of a `with`."""

    def __init__(self, stream):
        self.stream = stream
        self._previous = []

    def __enter__(self):
        if self.stream is None:
            return
        before = current_stream()
        self._previous.append((before, current_stream(self.stream.device)))
        set_stream(self.stream)

    def __exit__(self, kind, value, traceback):
        if self.stream is None:
            return
        before, there = self._previous.pop()
        set_stream(there)
        set_stream(before)


def stream(stream) -> StreamContext:
    return StreamContext(stream)


def set_stream(stream) -> None:
    """Makes `stream` current, and its device too; None changes nothing."""
    if stream is None:
        return
    if isinstance(stream, ExternalStream):
        stream._refuse("setCurrentStream")
    _lazy_init()
    torch._C._accelerator_setStream(stream)


def current_stream(device: Device = None) -> Stream:
    _lazy_init()
    found = torch._C._accelerator_getStream(_checked_index(device))
    return _wrap(found.stream_id, found.device_index)


def default_stream(device: Device = None) -> Stream:
    _lazy_init()
    return _wrap(0, _checked_index(device))


def _wrap(stream_id: int, device_index: int) -> Stream:
    return _Base.__new__(
        Stream, stream_id=stream_id, device_index=device_index, device_type=_DEVICE_TYPE
    )
