# SPDX-License-Identifier: Apache-2.0
"""Marks and ranges for a profiler, shown as PyTorch's own record_function ranges."""

import functools
import itertools
import threading
from contextlib import contextmanager

import torch

__all__ = ["annotate", "mark", "mstx_range", "range_end", "range_pop", "range_push", "range_start"]

_ids = itertools.count(1)
_open: dict[int, torch.autograd.profiler.record_function] = {}
_stack = threading.local()


def mark(message: str, stream=None, domain: str = "default") -> None:
    with torch.autograd.profiler.record_function(message):
        pass


def range_start(message: str, stream=None, domain: str = "default") -> int:
    """Opens a range; its number closes it."""
    number = next(_ids)
    _open[number] = torch.autograd.profiler.record_function(message)
    _open[number].__enter__()
    return number


def range_end(range_id: int, domain: str = "default") -> None:
    opened = _open.pop(range_id, None)
    if opened is None:
        raise ValueError(f"torch.npu.mstx.range_end: no open range {range_id!r}.")
    opened.__exit__(None, None, None)


def range_push(message: str, domain: str = "default") -> int:
    """Opens a range inside those of this thread; gives its depth."""
    ranges = _stack.__dict__.setdefault("ranges", [])
    ranges.append(range_start(message))
    return len(ranges) - 1


def range_pop(domain: str = "default") -> int:
    ranges = _stack.__dict__.setdefault("ranges", [])
    if not ranges:
        raise RuntimeError("torch.npu.mstx.range_pop: no range is open on this thread.")
    range_end(ranges.pop())
    return len(ranges)


@contextmanager
def mstx_range(message: str, stream=None, domain: str = "default"):
    number = range_start(message)
    try:
        yield number
    finally:
        range_end(number)


def annotate(message: str = "", domain: str = "default"):
    """Decorator: a range around each call."""

    def wrap(function):
        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with mstx_range(message or function.__name__):
                return function(*args, **kwargs)

        return wrapped

    return wrap
