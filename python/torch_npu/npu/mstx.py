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


def show_domains(include, exclude) -> None:
    """Ranges of which domains profiles hold from now on; for torch_npu.profiler."""
    global _shown, _hidden
    _shown, _hidden = set(include), set(exclude)


def _range(message: str, domain: str):
    if (_shown and domain not in _shown) or domain in _hidden:
        return nullcontext()
    if not isinstance(message, str):
        raise TypeError(f"torch.npu.mstx: message={message!r} is no text.")
    return torch.autograd.profiler.record_function(message)


def mark(message: str, stream=None, domain: str = "default") -> None:
    with _range(message, domain):
        pass


def range_start(message: str, stream=None, domain: str = "default") -> int:
    """Opens a range; its number closes it."""
    opened = _range(message, domain)
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
    ranges.append(range_start(message, domain=domain))
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
