# SPDX-License-Identifier: Apache-2.0
"""OpAutoCompare and an input that other work changes while a kernel runs: the kernel is not blamed."""

import op_tools
import pytest
import torch
from op_tools.core import location
from optools_helpers import kernel

SAYS = "the input changed while the kernel ran: other work wrote self, and nothing orders the two"


def judged(device, largest):
    """What OpAutoCompare finds of a maximum on a device whose kernel is `largest(x, a, b)`."""
    x = torch.full((64,), 2.0, device=device)
    y = torch.full((64,), 3.0, device=device)
    tool = op_tools.OpAutoCompare()
    tool.every = 1
    with kernel("maximum", lambda a, b: largest(x, a, b), device), tool:
        torch.maximum(x, y)
        torch.maximum(x, y)
    return [f for f in tool.findings() if f["op"] == "aten::maximum"]


def test_another_stream_writes_meanwhile(accelerator):
    """The program's x changes when its kernel runs, as by a stream that was not waited for."""

    def largest(x, a, b):
        if a.data_ptr() == x.data_ptr():
            x.add_(1)
        return torch.where(a > b, a, b)

    found = judged(accelerator, largest)
    assert [(f["verdict"], SAYS in f["reason"]) for f in found] == [("warn", True)] * 2
    assert "test_input_races.py" in location(found[0]["site"])


def test_a_kernel_that_writes_its_input_is_blamed(accelerator):
    def largest(x, a, b):
        result = torch.where(a > b, a, b)
        a.zero_()
        return result

    found = judged(accelerator, largest)
    assert found and found[0]["verdict"] == "error"
    assert "self, which it only reads" in str(found[0])
    assert not any("the input changed" in f["reason"] for f in found)


def test_a_wrong_kernel_is_blamed(accelerator):
    found = judged(accelerator, lambda x, a, b: torch.where(a > b, a, b) - 0.5)
    assert [f["verdict"] for f in found] == ["error"] * 2


def test_a_right_kernel_is_not(accelerator):
    assert judged(accelerator, lambda x, a, b: torch.where(a > b, a, b)) == []


@pytest.mark.parametrize("size", [0, 1])
def test_small_inputs(accelerator, size):
    x = torch.ones(size, device=accelerator)
    tool = op_tools.OpAutoCompare()
    with tool:
        x.mul(x)
        x.expand(3, size).sum()
    assert tool.findings() == []
