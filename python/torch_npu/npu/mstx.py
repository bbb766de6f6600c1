# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges for a profiler, shown as PyTorch's own record_function ranges."""

import functools
import itertools
import threading
from contextlib import contextmanager, nullcontext

import torch

__all__ = ["annotate", "mark", "mstx_range", "range_end", "range_pop", "range_push", "range_start"]

_ids = itertools.count(1)
_open: dict[int, object] = {}
_stack = threading.local()
_shown: set[str] = set()  # domains; none: all but _hidden
_hidden: set[str] = set()
MARK, PUSH_POP, START_END = 0, 1, 2  # as Ascend numbers them
_seen: dict[str, tuple[int, str]] | None = None  # while a profile is taken


def begin_profile(include, exclude) -> None:
    """Ranges of which domains the profile that begins holds; for torch_npu.profiler."""
    global _shown, _hidden, _seen
    _shown, _hidden, _seen = set(include), set(exclude), {}


def end_profile() -> None:
    global _shown, _hidden, _seen
    _shown, _hidden, _seen = set(), set(), None


def seen() -> dict[str, tuple[int, str]]:
    """The ranges and marks since begin_profile(): {message: (how, domain)}."""
    return dict(_seen or {})


def _range(message: str, domain: str, how: int):
    if (_shown and domain not in _shown) or domain in _hidden:
        return nullcontext()
    if not isinstance(message, str):
        raise TypeError(f"torch.npu.mstx: message={message!r} is no text.")
    if _seen is not None:
        _seen[message] = (how, domain)
    return torch.autograd.profiler.record_function(message)


def mark(message: str, stream=None, domain: str = "default") -> None:
    with _range(message, domain, MARK):
        pass


def range_start(message: str, stream=None, domain: str = "default") -> int:
    """Opens a range; its number closes it."""
    return _open_range(message, domain, START_END)


def _open_range(message: str, domain: str, how: int) -> int:
    opened = _range(message, domain, how)
    opened.__enter__()
    number = next(_ids)
    _open[number] = opened
    return number


def range_end(range_id: int, domain: str = "default") -> None:
    opened = _open.pop(range_id, None)
    if opened is None:
        raise ValueError(f"torch.npu.mstx.range_end: no open range {range_id!r}.")
    opened.__exit__(None, None, None)


def range_push(message: str, domain: str = "default") -> int:
    """Opens a range inside those of this thread; gives its depth."""
    ranges = _stack.__dict__.setdefault("ranges", [])
    ranges.append(_open_range(message, domain, PUSH_POP))
    return len(ranges) - 1


def range_pop(domain: str = "default") -> int:
    ranges = _stack.__dict__.setdefault("ranges", [])
    if not ranges:
        raise RuntimeError("torch.npu.mstx.range_pop: no range is open on this thread.")
    range_end(ranges.pop())
    return len(ranges)


@contextmanager
def mstx_range(message: str, stream=None, domain: str = "default"):
    number = range_start(message, stream, domain)
    try:
        yield number
    finally:
        range_end(number)


def annotate(message: str = "", domain: str = "default"):
    """Decorator: a range around each call."""

    def wrap(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with mstx_range(message or function.__name__, domain=domain):
                return function(*args, **kwargs)

        return wrapped

    return wrap
