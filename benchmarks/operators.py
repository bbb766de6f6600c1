# SPDX-License-Identifier: Apache-2.0
"""Single operators on npu against the same on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional as F

from benchmarks import measure

SMALL, LARGE, GEMM = 64, 1 << 20, 512
SMALL_CALLS, PAIRS = 2000, 200

Make = Callable[[str], Callable[[], object]]


def _filled(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3)).to(device)


def _binary(op: Callable, *shapes: tuple[int, ...]) -> Make:
    def make(device: str):
        a, b = (_filled(device, *shape) for shape in shapes)
        return partial(op, a, b)

    return make


def _unary(op: Callable, *shape: int) -> Make:
    def make(device: str):
        a = _filled(device, *shape)
        return partial(op, a)

    return make


def _copy(n: int) -> Make:
    def make(device: str):
        a, b = _filled(device, n), _filled(device, n)
        return partial(a.copy_, b)

    return make


SMALL_OPERATORS: dict[str, Make] = {
    "add": _binary(torch.add, (SMALL,), (SMALL,)),
    "mul": _binary(torch.mul, (SMALL,), (SMALL,)),
    "relu": _unary(torch.relu, SMALL),
    "sum": _unary(torch.sum, SMALL),
    "copy": _copy(SMALL),
    # Broadcasting leaves the fast path: shapes come from PyTorch's structured meta.
    "add-broadcast": _binary(torch.add, (8, 8), (8,)),
}
LARGE_OPERATORS: dict[str, Make] = {
    "add-1m": _binary(torch.add, (LARGE,), (LARGE,)),
    "sum-1m": _unary(torch.sum, LARGE),
    "mm-512": _binary(torch.mm, (GEMM, GEMM), (GEMM, GEMM)),
    "normal-1m": _unary(lambda x: x.normal_(), LARGE),
    "uniform-1m": _unary(lambda x: x.uniform_(), LARGE),
    "dropout-1m": _unary(lambda x: F.dropout(x, 0.1, training=True), LARGE),
}


def compare(make: Make, count: int, repeat: int) -> dict:
    """`make("npu")` against `make("cpu")`, in pairs."""
    ours, theirs, again = make("npu"), make("cpu"), make("cpu")
    for fn in (ours, theirs, again):
        measure.timed(fn, min(repeat, 50))
    quiet, ratio = measure.compare(ours, theirs, again, count, repeat)
    return {"aa": quiet.median, **vars(ratio)}


def small(name: str) -> dict:
    return compare(SMALL_OPERATORS[name], PAIRS, SMALL_CALLS)


def large(name: str) -> dict:
    return compare(LARGE_OPERATORS[name], PAIRS, 4)
