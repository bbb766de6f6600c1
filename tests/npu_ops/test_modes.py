# SPDX-License-Identifier: Apache-2.0
"""Each implemented operator under autocast, with traced sizes, and compiled."""

import os

import pytest
import torch
from table import CASES, DEVICE, arguments, flat
from test_values import operator
from torch.fx.experimental.proxy_tensor import make_fx

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
# One case of each operator; those that draw random numbers are not in the table.
FIRST = list({c.op: c for c in reversed(CASES)}.values())[::-1]
FAKE = [c for c in FIRST if c.fake]
# Tracing takes a fifth of a second, compiling half a second: samples, all with OPENNPU_TEST_FULL=1.
TRACED = FAKE if FULL else FAKE[::5]
COMPILED = FAKE if FULL else FAKE[::25]


def split(case):
    """(tensors of the call in order, a function of them)."""
    args, kwargs = arguments(case, case.dtypes[0])
    tensors = []

    def place(value):
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return ("tensor", len(tensors) - 1)
        if isinstance(value, list):
            return ("list", [place(v) for v in value])
        return ("plain", value)

    slots = [place(a) for a in args], {k: place(v) for k, v in kwargs.items()}

    def back(slot, given):
        kind, value = slot
        if kind == "tensor":
            return given[value]
        return [back(v, given) for v in value] if kind == "list" else value

    def call(*given):
        return operator(case.op)(
            *[back(s, given) for s in slots[0]], **{k: back(s, given) for k, s in slots[1].items()}
        )

    return tensors, call


def same(found, expected):
    for got, want in zip(flat(found), flat(expected), strict=True):
        if isinstance(want, torch.Tensor):
            assert got.dtype == want.dtype
            if want.dtype.itemsize == 1 and want.is_floating_point():  # PyTorch compares no float8
                got, want = got.float(), want.float()
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)


def twice(case):
    """Fresh tensors, because some operators write into theirs."""
    tensors, call = split(case)
    return call(*[t.clone() for t in tensors]), tensors, call


@pytest.mark.parametrize("case", FIRST, ids=lambda c: c.op)
def test_autocast_changes_nothing(case):
    want, tensors, call = twice(case)
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        same(call(*[t.clone() for t in tensors]), want)


@pytest.mark.parametrize("case", TRACED, ids=lambda c: c.op)
def test_traced_sizes(case):
    want, tensors, call = twice(case)
    graph = make_fx(lambda *t: flat(call(*t)), tracing_mode="symbolic")(
        *[t.clone() for t in tensors]
    )
    same(graph(*[t.clone() for t in tensors]), want)


@pytest.mark.parametrize("case", COMPILED, ids=lambda c: c.op)
def test_compiled(case):
    want, tensors, call = twice(case)
    torch._dynamo.reset()
    compiled = torch.compile(call, backend="aot_eager", dynamic=True)
    same(compiled(*[t.clone() for t in tensors]), want)
