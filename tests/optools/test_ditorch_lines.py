# SPDX-License-Identifier: Apache-2.0
"""OP_TOOLS_VERBOSE: ditorch's lines, of the newest form and of August 2024."""

import csv
import re
from pathlib import Path

import op_tools
import pytest
import torch
from op_tools.base_hook import (
    BaseHook,
    DisableHookGuard,
    OpAutoCompareHook,
    OpObserveHook,
)
from op_tools.ditorch_compat import ditorch_folders
from op_tools.ditorch_compat.base_hook import forget_said
from torch.nn import functional as F


def step(device, dtype=torch.float32):
    """A linear of several autograd nodes, an in-place operator, a reduction; backward."""
    x = torch.randn(2, 3, 4, device=device, dtype=dtype, requires_grad=True)
    w = torch.randn(5, 4, device=device, dtype=dtype, requires_grad=True)
    y = F.linear(x, w)
    y.add_(1).sum().backward()
    return x, w


def lines(tool, form, capsys, monkeypatch, run):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", form)
    with tool:
        run()
    return capsys.readouterr().out


def test_observe(device, capsys, monkeypatch):
    text = lines(op_tools.OpObserve(), "ditorch", capsys, monkeypatch, lambda: step(device))
    assert "apply OpObserveHook on torch.nn.functional.linear\n" in text
    assert "skip OpObserveHook on torch.Tensor.backward\n" in text
    assert re.search(r"^torch\.Tensor\.sum  \d+$", text, re.M)
    assert f"{__file__}:" in text and "step: y = F.linear(x, w)" in text
    for column in "name device dtype numel shape stride requires_grad layout data_ptr".split():
        assert column in text
    assert "inputs[0]" in text and "outputs" in text
    assert "option: OP_TOOLS_DEVICE=" in text


def test_apply_and_skip_are_said_once_in_the_newest_form(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_OBSERVE_LIST", "torch.add")
    x = torch.ones(2, device=device)

    def run():
        for _ in range(2):
            torch.add(x, x)
            torch.sub(x, x)

    text = lines(op_tools.OpObserve(), "ditorch", capsys, monkeypatch, run)
    assert text.count("apply OpObserveHook on torch.add") == 1
    assert text.count("skip OpObserveHook on torch.sub") == 1
    assert len(re.findall(r"^torch\.add  \d+$", text, re.M)) == 2
    text = lines(op_tools.OpObserve(), "ditorch-2024-08", capsys, monkeypatch, run)
    assert text.count("apply OpObserveHook on torch.add") == 1
    assert text.count("skip OpObserveHook on torch.sub") == 2


def test_calls_of_other_devices_are_not_told(accelerator, capsys, monkeypatch):
    host = torch.ones(2)
    text = lines(
        op_tools.OpObserve(), "ditorch", capsys, monkeypatch, lambda: torch.add(host, host)
    )
    assert "torch.add" not in text


def test_overflow_tells_backward_of_every_argument(device, capsys, monkeypatch):
    text = lines(op_tools.OpOverflowCheck(), "ditorch", capsys, monkeypatch, lambda: step(device))
    call = re.search(r"^torch\.nn\.functional\.linear    forward_id: (\d+)$", text, re.M)
    assert len(re.findall(rf"forward_id: {call[1]}$", text, re.M)) == 2
    for column in "name inf_or_nan min max mean std norm".split():
        assert column in text
    after = text[text.rindex(call[0]) :]
    # The weight's gradient, which comes from another node than the result's.
    assert "grad_inputs[1]" in after and "(5, 4)" in after


def test_fallback(accelerator, capsys, monkeypatch):
    text = lines(op_tools.OpFallback(), "ditorch", capsys, monkeypatch, lambda: step(accelerator))
    assert re.search(r"^fallback    torch\.nn\.functional\.linear    forward_id: \d+", text, re.M)
    for label in ("input(device)[0]", "input(cpu)[0]", "output(device)", "output(cpu)"):
        assert label in text
    old = lines(
        op_tools.OpFallback(), "ditorch-2024-08", capsys, monkeypatch, lambda: step(accelerator)
    )
    head = r"^OpFallbackHook: torch\.nn\.functional\.linear {24}"
    assert re.search(head + r" input: \{'args': \(\{'shape': torch\.Size\(\[2, 3, 4\]\)", old, re.M)
    assert re.search(head + r" output: .* cpu output: .* dtype_convert_back_dict:\{\}$", old, re.M)


def test_cast(device, capsys, monkeypatch):
    run = lambda: step(device, torch.float16)  # noqa: E731
    text = lines(op_tools.OpDtypeCast(), "ditorch", capsys, monkeypatch, run)
    assert re.search(r"^cast_dtype    torch\.nn\.functional\.linear   forward_id: \d+$", text, re.M)
    assert "torch.float16 -> torch.float32" in text and "torch.float32 -> torch.float16" in text
    assert "input[1]" in text and "output[0]" in text
    run = lambda: step(device)  # noqa: E731
    assert "cast_dtype    " not in lines(
        op_tools.OpDtypeCast(), "ditorch", capsys, monkeypatch, run
    )


def test_time(device, capsys, monkeypatch):
    text = lines(op_tools.OpTimeMeasure(), "ditorch", capsys, monkeypatch, lambda: step(device))
    assert "forward_elasped" in text and "backward_elasped" in text
    path = re.search(r"^op elasped info saved to (.*)$", text, re.M)[1]
    rows = list(csv.DictReader(Path(path).read_text().splitlines()))
    row = next(row for row in rows if row["name"] == "torch.nn.functional.linear")
    assert float(row["forward_elasped"]) > 0 and float(row["backward_elasped"]) > 0
    for column in ("input", "output", "grad_inputs", "grad_outputs"):
        assert "'shape'" in row[column]
    old = lines(
        op_tools.OpTimeMeasure(), "ditorch-2024-08", capsys, monkeypatch, lambda: step(device)
    )
    number = r"\d+\.\d{8} ms     "
    assert re.search(
        rf"^OpTimeMeasureHook: torch\.Tensor\.sum {{15}}forward elasped:  {number}input: "
        r"\{.*\} output: \{'args'",
        old,
        re.M,
    )
    assert re.search(
        rf"^OpTimeMeasureHook: torch\.Tensor\.sum {{15}}backward elasped: {number}grad_inputs: "
        r"\{'args': \(\(\{.*\} output: \{'args': \(\(\{",
        old,
        re.M,
    )


def test_nothing_is_kept_alive_by_lines(device, capsys, monkeypatch):
    import gc
    import weakref

    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    with op_tools.OpTimeMeasure():
        x = torch.ones(3, device=device, requires_grad=True)
        y = torch.sin(x)
        seen = weakref.ref(y)
        del y
        gc.collect()
        assert seen() is None


@pytest.mark.broken_tool
def test_a_hook_that_fails_does_not_reach_user_code(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")

    def broken(self, result):
        raise ZeroDivisionError("of the tool")

    monkeypatch.setattr(OpObserveHook, "after_call_op", broken)
    x = torch.ones(2, device=device)
    tool = op_tools.OpObserve()
    with (
        pytest.warns(
            UserWarning, match="OpObserve stopped printing single calls.*torch.add.*of the tool"
        ),
        tool,
    ):
        assert torch.add(x, x).cpu().tolist() == [2, 2]
        torch.add(x, x)
    assert len(tool.records()) >= 2


def test_a_hook_can_be_called(device, capsys):
    forget_said()
    x = torch.ones(2, device=device)
    hook = OpObserveHook("torch.add", torch.add)
    assert hook(x, x).cpu().tolist() == [2, 2]
    assert "apply OpObserveHook on torch.add" in capsys.readouterr().out
    hook.add_condition_func(lambda a, b: False)
    hook(x, x)
    assert "skip OpObserveHook on torch.add" in capsys.readouterr().out
    with DisableHookGuard():
        hook(x, x)
    assert capsys.readouterr().out == ""
    assert BaseHook.class_name() == "BaseHook"


def test_a_hook_passes_exceptions_on(device, capsys):
    hook = OpObserveHook("torch.add", torch.add)
    with pytest.raises(RuntimeError):
        hook(torch.ones(2, device=device), torch.ones(3, device=device))
    assert isinstance(hook.exception, RuntimeError)


def test_a_called_hook_falls_back(accelerator, capsys):
    from op_tools.base_hook import OpFallbackHook

    x = torch.ones(2, device=accelerator)
    assert OpFallbackHook("torch.add", torch.add)(x, x).cpu().tolist() == [2, 2]
    text = capsys.readouterr().out
    assert "aten::add.Tensor" in text and "ran on the cpu" in text


class Net(torch.nn.Module):
    """Views, in-place, random, several outputs, a layer used twice."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = torch.nn.Linear(8, 8)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)), inplace=True)
        a, b = F.dropout(x, 0.2).flatten(2).chunk(2, dim=1)
        x = torch.cat([a, b.transpose(1, 2).transpose(1, 2)], dim=1)
        x = x.unflatten(2, (2, 8)).flatten(1, 2)
        x = self.head(self.head(self.attention(x, x, x)[0]))
        return x.sort(dim=-1).values.max(dim=1).values


@pytest.mark.parametrize("form", ["ditorch", "ditorch-2024-08"])
@pytest.mark.parametrize(
    "name", ["OpObserve", "OpOverflowCheck", "OpTimeMeasure", "OpCapture", "OpAutoCompare"]
)
def test_results_are_the_same_bits(device, monkeypatch, name, form):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", form)
    monkeypatch.setenv("OP_CAPTURE_FORMAT", form)
    torch.manual_seed(0)
    state = {k: v.to(device) for k, v in Net().state_dict().items()}
    x = torch.randn(2, 3, 4, 4).to(device)

    def train():
        model = Net().to(device)
        model.load_state_dict(state)
        optimizer = torch.optim.Adam(model.parameters())
        loss = F.mse_loss(model(x), torch.ones(2, 8, device=device))
        loss.backward()
        optimizer.step()
        return loss, [p.grad for p in model.parameters()], list(model.parameters())

    op_tools.self_check(getattr(op_tools, name), train, repeats=1)


def _autocompare_table():
    (path,) = Path("op_tools_results/op_autocompare_result").glob("*.csv")
    return list(csv.DictReader(path.read_text().splitlines()))


def test_the_table_grows_while_the_program_runs(device, capsys, monkeypatch):
    """OP_TOOLS_MAX_CACHE_SIZE rows at a time, under one head."""
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    monkeypatch.setenv("OP_TOOLS_MAX_CACHE_SIZE", "2")
    x = torch.ones(3, device=device)
    with op_tools.OpAutoCompare() as tool:
        torch.sin(x)
        assert not Path("op_tools_results").exists()
        torch.sin(x)
        assert len(_autocompare_table()) == 2
        torch.sin(x)
        assert len(_autocompare_table()) == 2
    rows = _autocompare_table()
    assert [row["name"].strip() for row in rows] == ["torch.sin output"] * 3
    assert {row["allclose"] for row in rows} == {"True"}
    assert capsys.readouterr().out.count("op autocompare result saved to ") == 2
    tool.save_csv("all.csv")
    assert len(Path("all.csv").read_text().splitlines()) == 4


def test_a_table_that_cannot_grow_is_said_twice_at_most(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    monkeypatch.setenv("OP_TOOLS_MAX_CACHE_SIZE", "1")
    Path("op_tools_results").write_text("a file where the folder should be")
    x = torch.ones(3, device=device)
    with op_tools.OpAutoCompare() as tool:
        for _ in range(5):
            torch.sin(x)
    assert not tool.gave_up
    assert capsys.readouterr().out.count("could not be saved") == 2


class WrongBackward(torch.autograd.Function):
    """Right in float64, which is what the reference is in."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (2 if gradient.dtype == torch.float64 else 3)


@pytest.mark.parametrize("form", ["ditorch", "ditorch-2024-08"])
def test_a_wrong_gradient_is_saved_with_its_call(device, capsys, monkeypatch, form):
    """Without the arguments it would be no case to run again."""
    monkeypatch.setenv("OP_TOOLS_VERBOSE", form)
    x = torch.ones(3, device=device, requires_grad=True)
    OpAutoCompareHook("torch.nn.functional.linear", WrongBackward.apply)(x).sum().backward()
    folders = [
        Path(folder) for folder in ditorch_folders.find(".") if ditorch_folders.load(folder).output
    ]
    assert sorted(folder.name for folder in folders) == ["cpu", "device"]
    for folder in folders:
        made = {path.name for path in folder.glob("*.pth")}
        assert made == {"input.pth", "output.pth", "grad_inputs.pth", "grad_outputs.pth"}
    case = ditorch_folders.load(str(next(f for f in folders if f.name == "device")))
    assert case.args[0].tolist() == [1, 1, 1] and case.output[0].tolist() == [2, 2, 2]
    assert case.grad_inputs[0].tolist() == [3, 3, 3]
    if form == "ditorch":
        content = torch.load(f"{case.folder}/input.pth", weights_only=True)
        assert re.fullmatch(r"autocompare/\d+/[\d-]+/device/input", content["identifier"])
