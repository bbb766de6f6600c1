# SPDX-License-Identifier: Apache-2.0
"""seeds/002: every usage of the tools it shows, on the npu device and on plain cpu tensors.

What it prints is of August 2024: OP_TOOLS_VERBOSE and OP_CAPTURE_FORMAT ask for those forms. Without
them the same usages give the tools' own short output, which is tested beside them.
"""

import interpreter
import os
import re
import subprocess
import sys
from pathlib import Path

import op_tools
import pytest
import torch
import torch_npu
from op_tools import captures
from op_tools.ditorch_compat import ditorch_folders

OLD = "ditorch-2024-08"
SOURCES = Path(__file__).parents[2] / "optools" / "python"
PARTS = "input output grad_inputs grad_outputs".split()
NAMES = [f"torch.Tensor.{name}" for name in "to mul add sub div sort sum".split()]


@pytest.fixture(params=["npu", "cpu"])
def device(request, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    if request.param == "cpu":
        monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    return request.param


@pytest.fixture
def old(monkeypatch):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", OLD)
    monkeypatch.setenv("OP_CAPTURE_FORMAT", OLD)


def snippet(device):
    x = torch.linspace(-2, 2, 12).view(3, 4).to(device).requires_grad_()
    y = x.to(torch.float64)
    y = y * 3
    y = y + 1
    y = y - 0.5
    y = y / 2
    y.sort()[0].sum().backward()
    return x


def usage_1(tool, device, stop="stop"):
    tool.start()
    x = snippet(device)
    getattr(tool, stop)()
    return x


def usage_2(tool, device):
    with tool:
        return snippet(device)


USAGES = [usage_1, usage_2]


def lines_about(text, start):
    return [line for line in text.splitlines() if line.startswith(start)]


# ---- capture ------------------------------------------------------------------------
@pytest.mark.parametrize("usage", USAGES)
def test_capture(device, usage, old, capsys):
    x = usage(op_tools.OpCapture(), device)
    text = capsys.readouterr().out
    for name in NAMES:
        (apply,) = re.finditer(rf"^apply OpCaptureHook on {re.escape(name)}$", text, re.M)
        saved = rf"op_capture_result/0/\d{{4}}-\d\d-\d\d--\d\d-\d\d/{re.escape(name)}/\d+/"
        assert re.match(
            rf"\n{saved}input\.pth saved\n{saved}output\.pth saved\n", text[apply.end() :]
        )
        for part in PARTS[2:]:
            assert re.search(rf"^{saved}{part}\.pth saved$", text, re.M)
    after = text[text.index("skip OpCaptureHook on torch.Tensor.backward") :]
    order = [m[1] for m in re.finditer(r"/(torch\.Tensor\.\w+)/\d+/grad_inputs\.pth saved", after)]
    assert order == list(reversed(NAMES))
    moves = (f for f in ditorch_folders.find(".") if "/torch.Tensor.to/" in f)
    (case,) = (c for c in map(ditorch_folders.load, moves) if torch.float64 in c.args)
    torch.testing.assert_close(case.grad_inputs[0], x.grad.cpu())


@pytest.mark.parametrize("usage", USAGES)
def test_capture_in_its_own_format(device, usage, capsys):
    tool = op_tools.OpCapture()
    usage(tool, device)
    capture = captures.open(tool.folder)
    ops = {(record.op.split(".")[0], record.phase) for record in capture}
    assert {("aten::mul", "forward"), ("aten::sort", "forward"), ("aten::div", "backward")} <= ops
    assert not capture.problems and capture.finished


def test_capture_only_sort(device, old, monkeypatch, capsys):
    monkeypatch.setenv("OP_CAPTURE_LIST", "torch.Tensor.sort")
    usage_2(op_tools.OpCapture(), device)
    text = capsys.readouterr().out
    for name in "mul add sub div".split():
        assert f"skip OpCaptureHook on torch.Tensor.{name}\n" in text
    assert lines_about(text, "apply ") == ["apply OpCaptureHook on torch.Tensor.sort"]
    assert {p.parent.parent.name for p in Path().rglob("*.pth")} == {"torch.Tensor.sort"}
    assert {p.stem for p in Path().rglob("*.pth")} == set(PARTS)


def test_capture_all_but_add_and_sub(device, old, monkeypatch, capsys):
    monkeypatch.setenv("OP_CAPTURE_DISABLE_LIST", "torch.Tensor.add,torch.Tensor.sub")
    usage_2(op_tools.OpCapture(), device)
    text = capsys.readouterr().out
    assert (
        "skip OpCaptureHook on torch.Tensor.add\nskip OpCaptureHook on torch.Tensor.sub\n" in text
    )
    found = {p.parent.parent.name for p in Path().rglob("input.pth")}
    assert found >= set(NAMES) - {"torch.Tensor.add", "torch.Tensor.sub"}
    assert not found & {"torch.Tensor.add", "torch.Tensor.sub"}


def test_lists_in_its_own_format(device, monkeypatch, capsys):
    monkeypatch.setenv("OP_CAPTURE_LIST", "torch.Tensor.sort")
    tool = op_tools.OpCapture()
    usage_2(tool, device)
    records = list(captures.open(tool.folder))
    assert {record.api for record in records} == {"torch.Tensor.sort"}
    assert {record.phase for record in records} == {"forward", "backward"}


# ---- compare ------------------------------------------------------------------------
@pytest.mark.parametrize("usage", USAGES)
def test_compare(device, usage, old, capsys):
    usage(op_tools.OpAutoCompare(), device)
    text = capsys.readouterr().out
    tail = r" allclose: True    max_diff: +\d+\.\d{9}$"
    for name in ("mul", "add", "sub", "div", "sum"):
        label = f"torch.Tensor.{name}"
        assert re.search(rf"^OpAutoCompareHook: {label:<50}{tail}", text, re.M), name
        label = re.escape(f"{label + ' (ins[0].grad)':<50}")
        assert re.search(rf"^OpAutoCompareHook: {label}{tail}", text, re.M), name
    sort = [f"OpAutoCompareHook: {'torch.Tensor.sort':<46} {i}th allclose: True" for i in (0, 1)]
    assert all(any(line.startswith(start) for line in text.splitlines()) for start in sort)
    assert "allclose: False" not in text


@pytest.mark.parametrize("usage", USAGES)
def test_compare_in_its_own_form(device, usage, capsys):
    tool = op_tools.OpAutoCompare()
    usage(tool, device)
    assert tool.errors() == []
    text = capsys.readouterr().out
    assert "aten::mul.Tensor" in text and "OpAutoCompareHook" not in text
    assert list(Path("op_tools_results/op_autocompare_result").glob("*.csv"))


def test_what_differs_is_shown_and_saved(device, old, monkeypatch, capsys):
    monkeypatch.setenv("LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "0,0")
    torch.manual_seed(0)
    x, w = torch.randn(8, 500, device=device), torch.randn(4, 500, device=device)
    with op_tools.OpAutoCompare():
        torch.nn.functional.linear(x, w)
    text = capsys.readouterr().out
    head = re.escape(f"OpAutoCompareHook: {'torch.nn.functional.linear':<50} ")
    assert re.search(rf"^{head}allclose: False    max_diff: +0\.0000\d{{5}}$", text, re.M)
    given = r"\{'shape': torch\.Size\(\[8, 500\]\), 'stride': \(500, 1\), 'numel': 4000, 'dtype': "
    assert re.search(rf"^{head}input: \{{'args': \({given}'torch\.float32'", text, re.M)
    assert re.search(rf"^{head}output: \(\{{'shape': torch\.Size\(\[8, 4\]\)", text, re.M)
    for side in ("device", "cpu"):
        for part in ("input", "output"):
            path = rf"op_capture_result/torch\.nn\.functional\.linear/\d+/{side}/{part}\.pth"
            assert re.search(rf"^{path} saved$", text, re.M)


# ---- time ---------------------------------------------------------------------------
def use_end(tool, device):
    return usage_1(tool, device, "end")


@pytest.mark.parametrize("usage", [usage_2, use_end])
def test_time(device, usage, old, capsys):
    usage(op_tools.OpTimeMeasure(), device)
    text = capsys.readouterr().out
    number = r"\d+\.\d{8} ms     "
    for name in ("mul", "div", "sum"):
        head = rf"^OpTimeMeasureHook: {f'torch.Tensor.{name}':<30} "
        shape = r"\{'args': \(\{'shape': torch\.Size\("
        assert re.search(head + rf"forward elasped:  {number}input: {shape}", text, re.M), name
        shape = r"\{'args': \(\(\{'shape': torch\.Size\("
        assert re.search(
            head + rf"backward elasped: {number}grad_inputs: {shape}.* output: {shape}", text, re.M
        ), name


@pytest.mark.parametrize("usage", [usage_2, use_end])
def test_time_in_its_own_form(device, usage, capsys):
    tool = op_tools.OpTimeMeasure()
    usage(tool, device)
    rows = {(row["name"], row["phase"]) for row in tool.table()}
    assert {("aten::mul.Tensor", "forward"), ("aten::mul.Tensor", "backward")} <= rows
    assert "op elasped info saved to " in capsys.readouterr().out


# ---- fallback -----------------------------------------------------------------------
@pytest.mark.parametrize("usage", [usage_2, use_end])
def test_fallback_of_everything(device, usage, old, capsys):
    x = usage(op_tools.OpFallback(), device)
    torch.testing.assert_close(x.grad.cpu(), torch.full((3, 4), 1.5))
    text = capsys.readouterr().out
    for name in ("mul", "add", "sub", "div", "sum"):
        head = rf"^OpFallbackHook: {f'torch.Tensor.{name}':<50} "
        assert re.search(head + r"input: \{'args': \(\{'shape': torch\.Size\(", text, re.M)
        made = r"\(\{'shape': .*'device': '"
        assert re.search(
            head
            + rf"output: {made}{device}.* cpu output: {made}cpu'.* dtype_convert_back_dict:\{{\}}$",
            text,
            re.M,
        )


def linear(device):
    x, w = torch.ones(2, 3, device=device), torch.ones(4, 3, device=device)
    y = torch.nn.functional.linear(x, w)
    return y.add(1).div(2)


@pytest.mark.parametrize(
    "variable, falls", [("OP_FALLBACK_LIST", True), ("OP_FALLBACK_DISABLE_LIST", False)]
)
def test_fallback_lists(device, old, monkeypatch, capsys, variable, falls):
    monkeypatch.setenv(variable, "torch.nn.functional.linear")
    tool = op_tools.OpFallback()
    with tool:
        result = linear(device)
    assert result.cpu().tolist() == [[2.0] * 4] * 2
    text = capsys.readouterr().out
    skipped = ["torch.Tensor.add", "torch.Tensor.div"] if falls else ["torch.nn.functional.linear"]
    applied = ["torch.nn.functional.linear"] if falls else ["torch.Tensor.add", "torch.Tensor.div"]
    for name in skipped:
        assert f"skip OpFallbackHook on {name}\n" in text
        assert f"OpFallbackHook: {name}" not in text
    for name in applied:
        assert f"OpFallbackHook: {name}" in text
    if device == "npu":
        ran = {op for op, why, _ in tool.counts() if not why}
        assert any("mm" in op for op in ran) == falls
        assert any("div" in op for op in ran) != falls


# ---- offline ------------------------------------------------------------------------
def run_script(device, *flags):
    """As the seed runs it: from the folder that holds op_tools."""
    (folder,) = (f for f in ditorch_folders.find(os.getcwd()) if "/torch.Tensor.div/" in f)
    done = interpreter.run(
        ["op_tools/run_op_from_data.py", folder, *flags, "--device", device],
        cwd=SOURCES,
        env={**os.environ, "OP_TOOLS_VERBOSE": ""},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def capture_div(device):
    with op_tools.OpCapture():
        x = torch.rand(3, 4, device=device).add(1).requires_grad_()
        torch.Tensor.div(
            x, torch.rand(3, 4, device=device).add(1).requires_grad_()
        ).sum().backward()


@pytest.mark.parametrize("form", ["ditorch", OLD])
def test_offline(device, monkeypatch, form):
    monkeypatch.setenv("OP_CAPTURE_FORMAT", form)
    monkeypatch.setenv("OP_CAPTURE_LIST", "torch.Tensor.div")
    capture_div(device)
    text = run_script(device, "--acc_check", "--run_times", "1")
    for label in ("", " 0th input grad", " 1th input grad"):
        start = f"OpAutoCompareHook: {'torch.Tensor.div' + label:<50} allclose: True    max_diff: "
        assert len(lines_about(text, start)) == 1
    text = run_script(device, "--run_times", "3", "--sync_time_measure")
    number = r"elasped \d+\.\d{8} ms"
    pair = (
        rf"SyncExecuteTimer: torch\.Tensor\.div forward  {number}\n"
        rf"SyncExecuteTimer: torch\.Tensor\.div backward {number}\n"
    )
    assert re.search(f"({pair}){{3}}", text)
    flags = ("--run_times", "3", "--only_run_forward", "--sync_time_measure")
    text = run_script(device, *flags)
    assert re.search(rf"(SyncExecuteTimer: torch\.Tensor\.div forward {number}\n){{3}}", text)
    assert "backward elasped" not in text
    assert "1 cases, 1 agree, 0 differ" in run_script(device)


# ---- the two lines ------------------------------------------------------------------
TWO_LINES = """
import torch
import ditorch

model = torch.nn.Linear(4, 2).cuda()
x = torch.ones(3, 4, device="cuda", requires_grad=True)
model(x).sum().backward()
expected = model.weight.detach().cpu().sum(0).expand(3, 4)
assert torch.allclose(x.grad.cpu(), expected)
assert {t.untyped_storage().device.type for t in (x, x.grad, *model.parameters())} == {DEVICE}
assert x.device.type == ("cpu" if DEVICE == "cpu" else "cuda")
assert torch.cuda.is_available() and torch.cuda.device_count() >= 1
"""


def test_cuda_code_after_two_lines(device):
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1" if device == "npu" else "0"}
    if torch.backends.cuda.is_built():  # a GPU would be chosen, or the plugin would not be loaded
        env["DITORCH_DEVICE"] = device
    done = interpreter.run(
        ["-c", TWO_LINES.replace("DEVICE", repr(device))],
        env=env,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "ditorch: " in done.stdout + done.stderr
