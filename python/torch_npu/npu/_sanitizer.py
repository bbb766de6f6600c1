# SPDX-License-Identifier: Apache-2.0
"""Stream sanitizer: finds work on different streams that uses the same memory in no order.

    TORCH_NPU_SANITIZER=1 python train.py

or `torch.npu._sanitizer.enable_npu_sanitizer()` at the program's beginning. The first access to memory
that nothing orders behind an earlier one is printed with the Python lines of both, and raises
`NPUSanitizerErrors`. `TORCH_NPU_SANITIZER=warn` prints and goes on.

Order and accesses are recorded in C++ (src/runtime/sanitizer); this module words the reports. The
names are torch_npu's, and the exceptions derive from those of torch.cuda._sanitizer.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
from dataclasses import dataclass, field

import torch
import torch.cuda._sanitizer as csan

from torch_npu import _C

__all__ = [
    "MissingRecordStreamError", "NPUSanitizer", "NPUSanitizerErrors", "UnsynchronizedAccessError",
    "enable_npu_sanitizer", "npu_sanitizer",
]  # fmt: skip

_RAISE, _WARN = "raise", "warn"
_MOST_FRAMES = 8
_LIBRARIES = tuple(
    os.path.join(os.path.dirname(os.path.abspath(place)), "")
    for place in (torch.__file__, _C.__file__, threading.__file__)
)


@dataclass
class Frame:
    file: str
    line: int
    function: str

    def is_library(self) -> bool:
        return self.file.startswith("<frozen") or self.file.startswith(_LIBRARIES[:2])

    def __str__(self) -> str:
        source = linecache.getline(self.file, self.line).strip()
        return f"{self.file}:{self.line} in {self.function}" + (f": {source}" if source else "")


def _frames(raw) -> list[Frame]:
    """The user's own lines, the innermost first; all of them where there are none."""
    frames = [Frame(*one) for one in raw]
    return [frame for frame in frames if not frame.is_library()] or frames


@dataclass
class Access:
    """One use of memory: what launched it, on which stream, and the lines that led there."""

    operator: str
    write: bool
    argument: str
    tensor: str
    begin: int
    end: int
    device: int
    stream_id: int
    on_host: bool
    by_group: bool
    released: bool
    stack_trace: list[Frame] = field(default_factory=list)
    forward_trace: list[Frame] = field(default_factory=list)

    @property
    def stream(self) -> int:
        """The stream's handle, as Stream.npu_stream gives it; 0 where it is no stream."""
        if self.on_host or self.by_group:
            return 0
        return _C._stream_handle(self.stream_id, self.device)

    def where(self) -> str:
        if self.on_host:
            return "on the host"
        if self.by_group:
            return f"by the process group, on npu:{self.device}"
        name = "the default stream" if self.stream_id == 0 else f"stream {self.stream_id}"
        return f"on {name} of npu:{self.device}"

    def __str__(self) -> str:
        what = self.argument if self.argument.startswith(("the ", "an ", "a ")) else (
            f"argument '{self.argument}'"
        )  # fmt: skip
        verb = "writes" if self.write else "reads"
        lines = [f"{self.operator} {verb} {what} ({self.tensor}) {self.where()}"]
        lines += _indented(self.stack_trace) or ["    (no Python on this thread)"]
        if self.forward_trace:
            lines.append("    in the backward pass of:")
            lines += _indented(self.forward_trace)
        return "\n  ".join(lines)

    def place(self) -> tuple:
        trace = self.forward_trace or self.stack_trace
        first = trace[0] if trace else None
        return self.operator, self.argument, (first.file, first.line) if first else None


def _indented(frames: list[Frame]) -> list[str]:
    left = len(frames) - _MOST_FRAMES
    lines = [f"    {frame}" for frame in frames[:_MOST_FRAMES]]
    return lines + ([f"    ... {left} more"] if left > 0 else [])


def _access(raw: dict) -> Access:
    launch = raw["launch"] or {"name": "?", "stack": [], "forward_stack": []}
    stream = raw["stream"]
    return Access(
        operator=launch["name"],
        write=raw["write"],
        argument=raw["argument"],
        tensor=raw["tensor"],
        begin=raw["begin"],
        end=raw["end"],
        device=stream["device"],
        stream_id=stream["id"],
        on_host=stream["host"],
        by_group=stream["group"],
        released=raw["released"],
        stack_trace=_frames(launch["stack"]),
        forward_trace=_frames(launch["forward_stack"]) if launch["forward_stack"] else [],
    )


class UnsynchronizedAccessError(csan.SynchronizationError):
    """Two accesses to the same bytes that nothing orders, one of which writes."""

    def __init__(self, current_access: Access, previous_access: Access, allocation=()):
        self.current_access = current_access
        self.previous_access = previous_access
        self.allocation_stack_trace = list(allocation)
        self.data_ptr = max(current_access.begin, previous_access.begin)

    def __str__(self) -> str:
        now, before = self.current_access, self.previous_access
        common = min(now.end, before.end) - self.data_ptr
        lines = [
            "NPU sanitizer: a data race",
            f"  {now}",
            f"  while this may still be running, queued earlier: {before}",
            f"  They share memory between {self.data_ptr:#x} and {self.data_ptr + common:#x}.",
        ]
        if self.allocation_stack_trace:
            lines += ["  The memory was allocated at:", *_indented(self.allocation_stack_trace)]
        return "\n".join([*lines, f"  {self.advice()}"])

    def advice(self) -> str:
        now, before = self.current_access, self.previous_access
        if now.on_host:
            return (
                "Host code uses pinned memory that a non_blocking copy may still use. Synchronize first: "
                "record an event after the copy and call event.synchronize()."
            )
        if before.by_group:
            return "Call wait() of the collective's work on the stream that uses its tensors."
        if before.released:
            return (
                "The memory was freed after the earlier use and handed out again. Call "
                f"tensor.record_stream(stream) for {_spoken(before)} before the tensor goes."
            )
        if now.by_group:
            return "Ask for the collective on a stream that waits for the earlier one: stream.wait_stream(other)."
        return (
            f"Let {_spoken(now)} wait for {_spoken(before)}: stream.wait_stream(other), or record an event after "
            "the earlier work and call stream.wait_event(event)."
        )


def _spoken(access: Access) -> str:
    return "the default stream" if access.stream_id == 0 else f"stream {access.stream_id}"


class NPUSanitizerErrors(csan.CUDASanitizerErrors):
    """Raised by the operator whose access races; `errors` says with what."""

    def __str__(self) -> str:
        count = len(self.errors)
        return f"the NPU sanitizer found {count} data race{'s' * (count != 1)}:\n" + "\n".join(
            str(error) for error in self.errors
        )


class MissingRecordStreamError(csan.SynchronizationError):
    """A tensor was used by another stream than its own, which may get the memory back too early."""

    def __init__(self, use: Access, owner: int, owner_device: int, allocation, freed: bool):
        self.use = use
        self.usage_stream = use.stream
        self.creation_stream = _C._stream_handle(owner, owner_device)
        self.allocation_stack_trace = allocation
        self.freed = freed

    def __str__(self) -> str:
        when = "was freed" if self.freed else "is alive"
        lines = [
            f"NPU sanitizer: a tensor that {when} was used by another stream than its own, and its own stream "
            "has not waited for that:",
            f"  {self.use}",
            "  Call tensor.record_stream(stream), or let the tensor's own stream wait, before it is freed.",
        ]
        return "\n".join(lines)


class _Handler:
    """The races found since the sanitizer was enabled."""

    def __init__(self, action: str):
        self.action = action
        self.errors: list[UnsynchronizedAccessError] = []
        self.record_stream_errors: list[MissingRecordStreamError] = []
        self._pending = threading.local()
        self._printed: set[tuple] = set()

    def flush_record_stream_warnings(self) -> list[MissingRecordStreamError]:
        """Tensors that are alive and used as `record_stream_errors` says of those that were freed."""
        return [_missing(raw) for raw in _C._sanitizer_missing_records()]

    def _race(self, earlier: dict, later: dict, allocated: dict | None) -> bool:
        allocation = _frames(allocated["stack"]) if allocated else []
        error = UnsynchronizedAccessError(_access(later), _access(earlier), allocation)
        self.errors.append(error)
        key = (error.current_access.place(), error.previous_access.place())
        if key not in self._printed:
            self._printed.add(key)
            if self.action == _WARN:
                print(error, file=sys.stderr, flush=True)
        if self.action != _RAISE:
            return False
        pending = self._pending.__dict__.setdefault("errors", [])
        pending.append(error)
        return True

    def _error(self) -> NPUSanitizerErrors:
        errors, self._pending.errors = self._pending.__dict__.get("errors", []), []
        return NPUSanitizerErrors(errors)

    def _missing_record(self, raw: dict) -> None:
        self.record_stream_errors.append(_missing(raw))


def _missing(raw: dict) -> MissingRecordStreamError:
    allocated = raw["allocated"]
    return MissingRecordStreamError(
        _access(raw["use"]),
        raw["owner"]["id"],
        raw["owner"]["device"],
        _frames(allocated["stack"]) if allocated else [],
        raw["freed"],
    )


class _Dispatch:
    """torch_npu's sanitizer has a dispatch mode here, which callers leave to switch it off."""

    def __exit__(self, *exception) -> None:
        _C._sanitizer_stop()


class NPUSanitizer:
    """Switches the sanitizer of the process on and off."""

    def __init__(self) -> None:
        self.event_handler: _Handler | None = None
        self.dispatch: _Dispatch | None = None
        self.enabled = False

    def enable(self, action: str | None = None) -> None:
        """`action`: "raise" in the operator whose access races, or "warn": print and go on."""
        if self.enabled:
            return
        handler = _Handler(_checked(action) if action is not None else _of_environment())
        _C._sanitizer_start(handler._race, handler._missing_record, handler._error)
        self.event_handler, self.dispatch, self.enabled = handler, _Dispatch(), True

    def disable(self) -> None:
        """Findings stay in `event_handler`."""
        if self.enabled:
            _C._sanitizer_stop()
            self.dispatch, self.enabled = None, False


def _checked(action: str) -> str:
    if action not in (_RAISE, _WARN):
        raise ValueError(f"npu: sanitizer: {action!r} is no action. Allowed: 'raise', 'warn'.")
    return action


def _of_environment() -> str:
    return _WARN if os.environ.get("TORCH_NPU_SANITIZER", "").lower() == _WARN else _RAISE


def enable_npu_sanitizer(action: str | None = None) -> None:
    """Enables the stream sanitizer; best at the beginning of the program.

    A race raises `NPUSanitizerErrors` in the operator that completes it, unless `action` or
    TORCH_NPU_SANITIZER is "warn".
    """
    npu_sanitizer.enable(action)


npu_sanitizer = NPUSanitizer()
