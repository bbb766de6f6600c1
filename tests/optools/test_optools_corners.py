# SPDX-License-Identifier: Apache-2.0
"""Values a formula and a limit disagree on, results only some kernels have: no error for them."""

import math

import op_tools
import pytest
import torch
from op_tools import _C
from optools_helpers import kernel, quiet
from torch.nn import functional as F

INF = math.inf


def judged(op, arguments, outputs, on_cpu=True):
    return _C.judge_call(_C.operator_names().index(op), arguments, outputs, {}, on_cpu)


def compared(function, *args):
    tool = quiet(op_tools.OpAutoCompare())
    with tool:
        function(*args)
    return tool


# What a kernel may give at minus infinity, 0 and infinity.
AT_INFINITY = {
    "aten::gelu": ((["none"], {}), [(math.nan, 0.0, INF), (-0.0, 0.0, INF)]),
    "aten::silu": (([], {}), [(math.nan, 0.0, INF), (-0.0, 0.0, INF)]),
    "aten::hardswish": (([], {}), [(math.nan, 0.0, INF), (-0.0, 0.0, INF)]),
    "aten::mish": (([], {}), [(math.nan, 0.0, INF), (-0.0, 0.0, INF)]),
    "aten::sinc": (([], {}), [(math.nan, 1.0, math.nan), (0.0, 1.0, 0.0)]),
}


@pytest.mark.parametrize("op", AT_INFINITY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_both_answers_at_infinity_pass(op, dtype):
    (more, _), answers = AT_INFINITY[op]
    x = torch.tensor([-INF, 0.0, INF], dtype=dtype)
    for answer in answers:
        found = judged(op, [x, *more], [torch.tensor(answer, dtype=dtype)])
        assert found["verdict"] == "pass", (answer, found)
    for wrong in ((1.0, answers[0][1], INF), (-INF, answers[0][1], -1.0)):
        found = judged(op, [x, *more], [torch.tensor(wrong, dtype=dtype)])
        assert found["verdict"] == "error", wrong


@pytest.mark.parametrize("name", ["gelu", "silu", "hardswish", "mish"])
def test_the_devices_own_answer_at_infinity_passes(device, name):
    x = torch.tensor([-INF, -1.0, 0.0, INF], device=device, requires_grad=True)
    tool = compared(lambda: getattr(F, name)(x).backward(torch.ones_like(x)))
    assert tool.findings() == []


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_one_over_complex_zero(device, dtype):
    x = torch.tensor([0j, 1 + 1j, -0.0 - 0j], dtype=dtype, device=device)
    assert compared(lambda: (x.reciprocal(), 1 / x, x / x)).findings() == []


def test_infinities_of_a_complex_number_have_a_direction():
    z = torch.tensor([complex(INF, math.nan)])
    right, turned = z, torch.tensor([complex(-INF, math.nan)])
    x = torch.zeros(1, dtype=torch.complex64)
    assert _C.judge(right, z.to(torch.complex128))["verdict"] == "pass"
    assert _C.judge(turned, z.to(torch.complex128))["verdict"] == "error"
    assert _C.judge(x, z.to(torch.complex128))["verdict"] == "error"


def test_a_range_through_zero(device):
    tool = compared(lambda: torch.linspace(-1, 1, 384, device=device))
    assert tool.findings() == []


# ---- results only some kernels have ---------------------------------------------------------
def float_statistics(x, shape, weight, bias, eps):
    host = x.cpu()
    wide = host.float()
    mean = wide.mean(-1, keepdim=True)
    rstd = (wide.var(-1, correction=0, keepdim=True) + eps).rsqrt()
    out = (wide - mean) * rstd
    out = out if weight is None else out * weight.cpu().float() + bias.cpu().float()
    return [t.to(x.device) for t in (out.to(x.dtype), mean, rstd)]


def other_statistics(x, shape, weight, bias, eps):
    out, mean, rstd = float_statistics(x, shape, weight, bias, eps)
    return out, mean, rstd * 1.001


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_in_float32(accelerator, dtype):
    """As PyTorch's own kernels on devices keep them; the cpu's keep half precision."""
    layer = torch.nn.LayerNorm(32).to(dtype).to(accelerator)
    x = torch.randn(6, 32).to(dtype).to(accelerator)
    with kernel("native_layer_norm", float_statistics, accelerator):
        tool = compared(layer, x)
    assert tool.findings() == []
    with kernel("native_layer_norm", other_statistics, accelerator):
        (error,) = compared(layer, x).errors()
    assert error["results"][error["worst"]]["result"] == "output[2]"


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_onednn_lstm_is_judged(on_cpu, both_ways, training):
    lstm = torch.nn.LSTM(5, 7, 2, bidirectional=both_ways, batch_first=True)
    x = torch.randn(3, 40, 5, requires_grad=training)
    with torch.set_grad_enabled(training):
        tool = compared(lstm, x)
    assert tool.findings() == []
    passed = {row["op"] for row in tool.table() if row["pass"]}
    assert "aten::mkldnn_rnn_layer" in passed, tool.skips()


def test_a_wrong_onednn_lstm_is_an_error():
    args = [torch.randn(5, 2, 3), torch.randn(16, 3), torch.randn(16, 4)]
    args += [torch.randn(16), torch.randn(16), torch.zeros(2, 4), torch.zeros(2, 4)]
    args += [False, [], 2, 4, 1, True, False, False, False]
    right = list(torch.ops.aten.mkldnn_rnn_layer.default(*args))[:3]
    assert judged("aten::mkldnn_rnn_layer", args, right)["verdict"] == "pass"
    right[1] = right[1] * 1.0001
    assert judged("aten::mkldnn_rnn_layer", args, right)["verdict"] == "error"
