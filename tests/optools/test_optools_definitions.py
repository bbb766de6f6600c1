# SPDX-License-Identifier: Apache-2.0
"""Operators that the CPU has no kernel of are judged by their definition: fused cells, rms norm."""

import op_tools
import pytest
import torch
from faults import back, host
from optools_helpers import kernel, quiet
from torch import nn

HALVES = [torch.float32, torch.bfloat16, torch.float16]


def lstm(device, dtype):
    return nn.LSTMCell(5, 7).to(device, dtype), (torch.randn(3, 5).to(device, dtype),)


def gru(device, dtype):
    return nn.GRUCell(5, 7, bias=dtype == torch.float32).to(device, dtype), (
        torch.randn(3, 5).to(device, dtype),
    )


def rms_norm(device, dtype):
    return nn.RMSNorm((4, 6)).to(device, dtype), (torch.randn(9, 2, 4, 6).to(device, dtype),)


CASES = {
    "_thnn_fused_lstm_cell": lstm,
    "_thnn_fused_lstm_cell_backward_impl": lstm,
    "_thnn_fused_gru_cell": gru,
    "_thnn_fused_gru_cell_backward": gru,
    "_fused_rms_norm_backward": rms_norm,
}


def run(make, device, dtype):
    torch.manual_seed(0)
    module, inputs = make(device, dtype)
    inputs = [x.requires_grad_() for x in inputs]
    tool = quiet(op_tools.OpAutoCompare())
    with tool:
        result = module(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        sum((r * torch.randn(r.shape).to(r)).sum() for r in results).backward()
    return tool


def rows(tool, op):
    return [row for row in tool.table() if row["op"] == "aten::" + op]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("op", CASES)
def test_it_is_judged_and_passes(accelerator, op, dtype):
    tool = run(CASES[op], accelerator, dtype)
    assert tool.findings() == []
    found = rows(tool, op)
    if not found:
        assert accelerator != "npu"
        pytest.skip("this device has no such operator")
    assert [(row["pass"], row["skip"]) for row in found] == [(1, 0)], tool.skips()


def spoiled(op, device, which):
    """The device's kernel with one result a thousandth too large."""
    base = getattr(torch.ops.aten, op).default
    right = torch.library.get_kernel(base, {"npu": "PrivateUse1", "cuda": "CUDA"}[device])

    def wrong(*args, **kwargs):
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse1)
        results = list(right.call_boxed(keys, *args, **kwargs))
        results[which] = results[which] * 1.001
        return tuple(results)

    return wrong


RESULTS = [(op, n) for op, count in zip(CASES, (2, 3, 1, 5, 2)) for n in range(count)]


@pytest.mark.parametrize("op, which", RESULTS, ids=[f"{op} {n}" for op, n in RESULTS])
def test_each_result_of_it_is(accelerator, op, which):
    if accelerator != "npu":
        pytest.skip("takes the plugin's kernel")
    with kernel(op, spoiled(op, accelerator, which), accelerator):
        tool = run(CASES[op], accelerator, torch.float32)
    assert [error["op"] for error in tool.errors()] == ["aten::" + op]


def test_a_dropped_infinity_may_be_zero(accelerator):
    """Selecting by the mask, or multiplying with it: both are kernels."""
    mask = torch.tensor([True, False, True, False]).to(accelerator)
    grad = torch.tensor([1.0, float("inf"), 2.0, float("nan")]).to(accelerator)
    args = (grad, mask, 2.0)

    def judged(function):
        tool = quiet(op_tools.OpAutoCompare())
        on_host = lambda *a: back(function(*host(a)), a[0])  # noqa: E731
        with kernel("native_dropout_backward", on_host, accelerator), tool:
            torch.ops.aten.native_dropout_backward(*args)
        return [error["reason"] for error in tool.errors()]

    assert judged(lambda g, m, s: g * m * s) == []
    assert judged(lambda g, m, s: torch.where(m, g * s, 0.0)) == []
    assert judged(lambda g, m, s: torch.where(m, g * s, 1.0)) != []
    assert judged(lambda g, m, s: torch.where(m, torch.zeros(()), g)) != []
