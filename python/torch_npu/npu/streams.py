# SPDX-License-Identifier: Apache-2.0
"""Streams and events: PyTorch's own, with torch_npu's attributes and text."""

import time

import torch

from torch_npu import _C
from torch_npu.utils._error_code import ErrCode, pta_error

from ._device import _lazy_init
from ._utils import Device, _checked_index

__all__ = [
    "Event", "ExternalEvent", "ExternalStream", "Stream", "StreamContext", "SyncLaunchStream",
    "current_stream", "default_stream", "set_stream", "stream",
]  # fmt: skip

_Base = torch.Stream  # transfer_to_npu puts another name there
_DEVICE_TYPE = 20  # c10::DeviceType::PrivateUse1
_NO_STREAM = 255  # an id that no pool hands out


class Stream(torch.Stream):
    """A queue of work on a device; priority below zero is high."""

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs):
        _lazy_init()
        if "stream_id" in kwargs:
            return _known(cls, **kwargs)
        index = _checked_index(device)
        if kwargs.pop("is_sync_launch", False):
            return _known(cls, _C._sync_launch_stream_id(index), index)
        _refuse_arguments(kwargs)
        return super().__new__(cls, device=torch.device("npu", index), priority=priority)

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
        return hash((self.stream_id, self.device))

    def __repr__(self) -> str:
        handle = _C._stream_handle(self.stream_id, self.device_index)
        return f"<torch_npu.npu.Stream device={self.device} npu_stream={handle:#x}>"


def _known(cls, stream_id: int, device_index: int = 0, device_type: int = _DEVICE_TYPE, **rest):
    """The stream of that id; an id, device or device type that is none raises."""
    _refuse_arguments(rest)
    if device_type != _DEVICE_TYPE:
        raise RuntimeError(
            f"torch.npu.Stream: device_type {device_type} is not npu's, {_DEVICE_TYPE}"
            + pta_error(ErrCode.PARAM)
        )
    _C._check_device_index(device_index)
    _C._stream_handle(stream_id, device_index)
    return _Base.__new__(
        cls, stream_id=stream_id, device_index=device_index, device_type=device_type
    )


def _refuse_arguments(kwargs: dict) -> None:
    if kwargs:
        raise TypeError(f"torch.npu.Stream: unexpected arguments {sorted(kwargs)}")


class SyncLaunchStream(Stream):
    """One of four streams for work launched without a task queue; ours never have one."""

    def __new__(cls, device: Device = None, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        return super().__new__(cls, device, is_sync_launch=True)


class ExternalStream(Stream):
    """A stream that is known by its handle and owned by its creator.

    Work can be put on one made with torch.npu.npurt().npuStreamCreate: the driver contract only
    takes streams of the driver itself. Waiting for it is its owner's business.
    """

    def __new__(cls, stream_ptr: int, device: Device = None):
        _lazy_init()
        index = _checked_index(device)
        known = _C._external_stream_id(int(stream_ptr), index)
        made = _Base.__new__(
            cls,
            stream_id=_NO_STREAM if known < 0 else known,
            device_index=index,
            device_type=_DEVICE_TYPE,
        )
        made._handle = int(stream_ptr)
        return made

    @property
    def npu_stream(self) -> int:
        return self._handle

    @property
    def priority(self) -> int:
        return 0

    def _refuse(self, what: str):
        raise RuntimeError(
            f"Cannot {what} an external stream (NPUStream::{what}). Use the library that made it."
            + pta_error(ErrCode.NOT_SUPPORT)
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


class Event(torch.Event):
    """A point in a stream. One never recorded counts as reached."""

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ):
        _lazy_init()
        if interprocess:
            raise NotImplementedError(
                "torch.npu.Event: interprocess events are not supported. "
                "Synchronize in this process, then notify the other one."
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

    def recorded_time(self) -> int:
        """When the stream reached this event, in microseconds of a clock that all events of the
        device share; waits for it."""
        start, clock = _first_moment(self.device.index)
        self.synchronize()
        return clock + round(start.elapsed_time(self) * 1000)

    def __repr__(self) -> str:
        if not self.npu_event:
            return "<torch_npu.npu.Event uninitialized>"
        return f"<torch_npu.npu.Event {self.npu_event:#x}>"


_moments: dict[int, tuple[Event, int]] = {}


def _first_moment(device: int) -> tuple[Event, int]:
    """An event of the device and the time of this computer's clock when it was reached."""
    if device not in _moments:
        event = Event(enable_timing=True)
        event.record(default_stream(device))
        event.synchronize()
        _moments[device] = event, time.time_ns() // 1000
    return _moments[device]


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
    if isinstance(stream, ExternalStream) and stream.stream_id == _NO_STREAM:
        raise RuntimeError(
            f"torch.npu.set_stream: {stream.npu_stream:#x} is no external stream of this driver. "
            "Make one with torch.npu.npurt().npuStreamCreate." + pta_error(ErrCode.PARAM)
        )
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


def erase_stream(tensor: torch.Tensor, stream: torch.Stream) -> None:
    """The program says that `stream` is done with the tensor, for which it called record_stream().
    The allocator knows by its events when that is so: nothing is left to do."""
    if not isinstance(tensor, torch.Tensor) or tensor.device.type != "npu":
        raise RuntimeError(
            f"erase_stream: expected an npu tensor, but got {_described(tensor)}."
            + pta_error(ErrCode.PARAM)
        )
    if not isinstance(stream, torch.Stream):
        raise TypeError(
            f"erase_stream: expected a stream, but got {type(stream).__name__}."
            + pta_error(ErrCode.TYPE)
        )


def _described(value) -> str:
    return f"one on {value.device}" if isinstance(value, torch.Tensor) else type(value).__name__
