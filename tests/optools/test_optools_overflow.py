# SPDX-License-Identifier: Apache-2.0
"""OpOverflowCheck: the first bad operator, and no other."""

import math

import op_tools
import pytest
import torch
from op_tools import _C


def test_names_the_first_bad_operator(device, capsys):
    x = torch.full((4,), 60000.0, device=device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        h = x.half()
        y = h + h  # overflows
        z = y - y  # NaN from infinities: not to blame
        z.sum()
    first = tool.first()
    assert first["op"] == "aten::add.Tensor"
    assert [e["op"] for e in tool.events()] == ["aten::add.Tensor", "aten::sub.Tensor", "aten::sum"]
    assert [e["first_bad"] for e in tool.events()] == [True, False, False]
    out = capsys.readouterr().out
    assert "aten::add.Tensor made" in out and "3 calls" in out
    assert [r["op"] for r in tool.history()][-1] == "aten::add.Tensor"


def test_clean_runs_report_nothing(device, capsys):
    x = torch.randn(5, 5, device=device, requires_grad=True)
    tool = op_tools.OpOverflowCheck()
    with tool:
        (x @ x).softmax(-1).log().sum().backward()
    assert tool.events() == []
    assert tool._last.checked > 5
    assert "0 calls with infinities" in capsys.readouterr().out


def test_backward_operators_are_checked(device):
    x = torch.tensor([0.0, 1.0], device=device, requires_grad=True)
    tool = op_tools.OpOverflowCheck()
    with tool:
        x.sqrt().sum().backward()  # 1 / (2 * sqrt(0))
    first = tool.first()
    assert first["phase"] == "backward"
    assert "div" in first["op"]


def test_bad_data_from_outside_is_not_blamed_on_its_reader(device):
    x = torch.tensor([1.0, math.nan], device=device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        (x * 2).exp()
    assert [e["op"] for e in tool.events()] == ["aten::mul.Tensor", "aten::exp"]
    assert tool.first() is None


def test_what_an_in_place_operator_overwrites_was_looked_at_before(device):
    x = torch.tensor([1.0, math.inf], device=device)
    y = torch.tensor([1.0, 3e38], device=device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        x.mul_(2)
        y.mul_(2)
    assert [(e["op"], e["first_bad"]) for e in tool.events()] == [
        ("aten::mul_.Tensor", False),
        ("aten::mul_.Tensor", True),
    ]


def test_an_infinity_passed_on_purpose_is_not_an_overflow(device):
    mask = torch.tensor([True, False], device=device)
    scores = torch.ones(2, device=device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        scores.masked_fill(mask, -math.inf).softmax(0)
    assert tool.first() is None


def test_uninitialised_memory_is_not_looked_at(device):
    tool = op_tools.OpOverflowCheck()
    with tool:
        bad = torch.empty(1 << 12, device=device)
        bad.view(64, 64)
    assert tool.events() == []


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
)
@pytest.mark.parametrize("where", [0, 7, 4095, 4096, 9999])
def test_every_dtype_and_place(device, dtype, where):
    x = torch.zeros(10000, dtype=dtype)
    x[where] = math.nan
    x = x.to(device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        x.neg()
    assert [e["op"] for e in tool.events()] == ["aten::neg"]


def test_strides(monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    base = torch.zeros(6, 8, 4)
    base[3, 5, 2] = math.inf
    for view in (
        base[:, 5],
        base.transpose(0, 2),
        base[1::2, 1::2, ::2],
        base[3:4].expand(7, 8, 4),
    ):
        assert _C.statistics(view)["+inf"] == int(torch.isinf(view).sum())
    for view in (base[:, 4], base[::2]):
        assert _C.statistics(view)["+inf"] == 0


def test_statistics_and_hash():
    x = torch.tensor([1.0, -2.0, 0.0, math.nan, -math.inf])
    stats = _C.statistics(x)
    assert (stats["nan"], stats["-inf"], stats["zero"], stats["min"], stats["max"]) == (
        1,
        1,
        1,
        -2.0,
        1.0,
    )
    y = torch.randn(5, 7)
    assert _C.content_hash(y) == _C.content_hash(y.t().contiguous().t())
    assert _C.content_hash(y) != _C.content_hash(y.flip(0))
    changed = y.clone()
    changed[2, 3] = torch.nextafter(changed[2, 3], torch.tensor(9.0))
    assert _C.content_hash(y) != _C.content_hash(changed)


def test_many_questions_to_a_device(accelerator):
    """More tensors than the device's list of answers holds."""
    tool = op_tools.OpOverflowCheck()
    x = torch.ones(4, device=accelerator)
    with tool:
        for i in range(3000):
            y = x * (1e38 if i == 2500 else 1.0)
            y = y * 100
    assert [e["op"] for e in tool.events()] == ["aten::mul.Tensor"]
    assert tool.first() is not None


def test_empty_tensors(device):
    with op_tools.OpOverflowCheck():
        torch.empty(0, 3, device=device).sin().sum()


def test_ditorch_lines_of_overflow(device, monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    with op_tools.OpOverflowCheck():
        torch.ones(3, device=device).log()
    text = capsys.readouterr().out
    assert "torch.Tensor.log    forward_id: " in text
    for column in "name inf_or_nan min max mean std norm".split():
        assert column in text
    assert "input[0]" in text and "output[0]" in text


def test_the_module_is_named(device, capsys):
    class Bad(torch.nn.Module):
        def forward(self, x):
            return x / 0

    model = torch.nn.Sequential(torch.nn.Identity(), Bad())
    tool = op_tools.OpOverflowCheck()
    with tool:
        model(torch.ones(2, device=device))
    assert tool.first()["module"] == "1"
    assert ", module 1, " in capsys.readouterr().out


@pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
def test_what_is_written_and_not_returned(device, fused):
    """Operators on lists return nothing: what they made is in their arguments."""
    good = torch.nn.Parameter(torch.ones(3, device=device))
    bad = torch.nn.Parameter(torch.full((4,), 3e38, device=device))
    optimizer = torch.optim.SGD([good, bad], lr=2.0, foreach=not fused, fused=fused)
    good.grad, bad.grad = torch.ones_like(good), -bad.detach().clone()
    tool = op_tools.OpOverflowCheck()
    with tool:
        optimizer.step()
        good.detach() + 1
        bad.detach() + 1  # its inputs are bad already
    assert torch.isinf(bad).all() and torch.isfinite(good).all()
    name = "aten::_fused_sgd_" if fused else "aten::_foreach_add_.List"
    assert [event["op"] for event in tool.events()] == [name, "aten::add.Tensor"]
    first = tool.first()
    assert first["op"] == name and first["phase"] == "optimizer"
    (tensor,) = first["tensors"]
    assert tensor["output"] and tensor["position"] == 0 and tensor["item"] == 1


def test_infinities_that_are_meant(device):
    """CTC's table of logarithms: what cannot be reached yet has the chance 0."""
    x = torch.randn(6, 2, 5, device=device, requires_grad=True)
    words = torch.tensor([[1, 2, 2], [3, 4, 0]], device=device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        sizes = torch.tensor([6, 6]), torch.tensor([3, 2])
        torch.nn.functional.ctc_loss(x.log_softmax(2), words, *sizes).backward()
    assert tool.events() == []
