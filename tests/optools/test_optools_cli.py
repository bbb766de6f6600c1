# SPDX-License-Identifier: Apache-2.0
"""op-tools ls, show, diff, replay, import, export."""

import json
import os
import re

import interpreter
import op_tools
import pytest
import torch
from op_tools import captures
from op_tools.cli import main
from optools_helpers import kernel, output, wrong_gelu
from record_logs import Ext, write_log
from report_pages import writer_capture
from torch import nn

pytestmark = pytest.mark.usefixtures("on_cpu")


def model_capture(scale=1.0, extra=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(), nn.Linear(16, 4))
    x = torch.randn(3, 8)
    tool = op_tools.OpCapture()
    with tool:
        hidden = model[1](model[0](x))
        if extra:
            hidden.abs()
        model[3](hidden * scale).square().sum().backward()
    return tool.folder


def test_ls_of_captures_and_of_calls(capsys):
    first = model_capture()
    code, text = output(capsys, "ls", first)
    assert code == 0
    lines = text.out.splitlines()
    assert len(lines) == len(captures.open(first))
    assert "aten::addmm" in text.out and "test_optools_cli.py" in lines[1]
    model_capture()
    code, text = output(capsys, "ls", "op_tools_results")
    assert code == 0 and len(text.out.splitlines()) == 2 and " calls  " in text.out
    code, text = output(capsys, "ls", first, "--op", "aten::addmm", "--json")
    found = [json.loads(line) for line in text.out.splitlines()]
    assert [f["op"] for f in found] == ["aten::addmm"] * 2
    assert found[0]["tensors"][0]["place"] == "args[0]"
    code, text = output(capsys, "ls", first, "--ops", "--phase", "backward")
    assert "aten::mm" in text.out and "forward" not in text.out


def test_show(capsys):
    folder = model_capture()
    record = next(captures.open(folder).select(op="aten::gelu"))
    code, text = output(capsys, "show", folder, record.number, "--values")
    assert code == 0
    assert "aten::gelu(Tensor self, *, str approximate" in text.out
    assert record.args[0].hash in text.out and "tensor([[" in text.out
    code, text = output(capsys, "show", folder, 10**9)
    assert code == 2 and "has no call 1000000000" in text.err


def test_diff_finds_the_first_other_call(capsys):
    a, b, c = model_capture(), model_capture(), model_capture(scale=1.5)
    code, text = output(capsys, "diff", a, b)
    assert code == 0 and " 0 differ" in text.out
    code, text = output(capsys, "diff", a, c)
    assert code == 1
    # The factor is an argument of mul: its inputs are not the same.
    assert "aten::mul.Tensor" in text.out and "inputs differ" in text.out
    code, text = output(capsys, "diff", a, model_capture(extra=True))
    assert code == 1 and " 0 differ; 0 only in" in text.out and "1 only in" in text.out


def test_diff_names_a_wrong_kernel(capsys):
    good = model_capture()
    with kernel("gelu", wrong_gelu, "cpu"):
        bad = model_capture()
    code, text = output(capsys, "diff", good, bad, "--rtol", "1e-4")
    assert code == 1
    assert "first call with equal inputs and other results: aten::gelu" in text.out


LINEAR = ["op", 1, "aten::linear", ""]


def calls(folder, *records):
    """A capture of calls of one operator."""
    made = [{"number": i + 1, "op": 1, **record} for i, record in enumerate(records)]
    return write_log(folder, (2, LINEAR), *((4, record) for record in made))


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ({"out": [1]}, {"out": [2]}, "outputs[0]: 1 and 2"),
        ({"out": [1]}, {"out": []}, "outputs[0]: 1 and nothing"),
        ({"out": []}, {"out": [1]}, "outputs[0]: nothing and 1"),
        ({"out": ["x"]}, {"out": ["y"]}, "outputs[0]: 'x' and 'y'"),
        ({"raised": "no"}, {"out": [1]}, "raised: 'no' and nothing"),
        ({"out": []}, {"raised": "no"}, "raised: nothing and 'no'"),
        ({"kwargs": {"k": 1.0}}, {"kwargs": {"k": 2.0}}, "kwargs[k]: 1.0 and 2.0"),
        ({"kwargs": {"k": 1.0}}, {}, "kwargs[k]: 1.0 and nothing"),
        ({"args": [True]}, {"args": [False]}, "args[0]: True and False"),
        ({"args": [1]}, {"args": [1, None]}, "args[1]: nothing and None"),
    ],
)
def test_diff_of_what_is_no_tensor(capsys, a, b, said):
    code, text = output(capsys, "diff", calls("a", a), calls("b", b))
    assert code == 1 and said in text.out, text.out
    assert output(capsys, "diff", calls("a", a), calls("b", a))[0] == 0


def test_diff_leaves_devices_and_small_differences_out(capsys):
    a, b = ({"args": [Ext(3, d), 1.0 + e], "out": [x]} for d, e, x in (("cpu", 0, 1.0), ("npu:0", 1e-9, 1.0 + 1e-9)))  # fmt: skip
    assert output(capsys, "diff", calls("a", a), calls("b", b))[0] == 1
    assert output(capsys, "diff", calls("a", a), calls("b", b), "--rtol", "1e-6")[0] == 0


def test_diff_of_a_tensor_on_one_side_only(capsys):
    folders = []
    for twice in (False, True):
        tool = op_tools.OpCapture()
        with tool:
            torch.ones(3).aminmax() if twice else torch.ones(3).sin()
        folders.append(tool.folder)
    for order in (folders, folders[::-1]):
        code, text = output(capsys, "diff", *order)
        assert code == 1 and "aten::aminmax" in text.out and "aten::sin" in text.out
        assert f"only in {order[0]}:" in text.out and f"only in {order[1]}:" in text.out


def test_diff_sees_past_an_infinity(capsys):
    """The largest element is no measure when it is infinite."""
    folders = []
    for value in (1.0, 1.5):
        tool = op_tools.OpCapture()
        with tool:
            torch.tensor([value, float("inf")]).neg()
        folders.append(tool.folder)
    code, text = output(capsys, "diff", *folders, "--op", "aten::neg", "--rtol", "0.1")
    assert code == 1 and "1 of 2 elements, at most 0.333" in text.out


def test_patterns_that_are_none(capsys):
    folder = model_capture()
    for command in (
        ["ls", folder],
        ["replay", folder],
        ["diff", folder, folder],
        ["export", folder, "x"],
    ):
        code, text = output(capsys, *command, "--op", "aten::(add")
        assert code == 2, command
        assert "'aten::(add' is no regular expression" in text.err
    with pytest.raises(SystemExit):
        main(["ls", folder, "--limit", "-1"])


def test_replay_agrees_and_finds_what_does_not(capsys, device, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")  # captured there, replayed on `device`
    folder = model_capture()
    code, text = output(capsys, "replay", folder, "--device", device)
    assert code == 0, text.out
    assert "aten::addmm" in text.out and ", 0 differ or failed" in text.out
    # The same arguments, another result.
    found = captures.open(folder)
    record = next(found.select(op="aten::gelu"))
    writer_folder = "edited"
    os.mkdir(writer_folder)
    from op_tools import _C
    from op_tools.tools.capture import head

    writer = _C.CaptureWriter(writer_folder, head())
    writer.define("op", 1, "aten::gelu", record.schema)
    writer.define("op", 2, "aten::no_such_operator", "")
    writer.define("op", 3, "os.system", "")
    x = record.args[0].load()
    writer.add({"number": 1, "op": 1, "args": [x, "none"], "out": [record.outputs[0].load() + 0.1]})
    writer.add({"number": 2, "op": 2, "args": [x], "out": [x]})
    writer.add({"number": 3, "op": 3, "args": ["touch harmed"], "out": [0]})
    writer.add({"number": 4, "op": 1, "args": [x, "none"], "out": [record.outputs[0].load()]})
    writer.close()
    code, text = output(capsys, "replay", writer_folder, "--device", device)
    assert code == 1
    assert "4 calls" in text.out and "1 agree, 3 differ or failed" in text.out
    assert "no_such_operator" in text.out and "os.system is no function of PyTorch's" in text.out
    assert not os.path.exists("harmed")


def test_wrong_use(capsys, tmp_path):
    code, text = output(capsys, "replay", tmp_path)
    assert code == 2 and "nothing to replay" in text.err
    code, text = output(capsys, "ls", tmp_path)
    assert code == 2 and "no capture at or below" in text.err
    folder = model_capture()
    code, text = output(capsys, "replay", folder, "--device", "nonsense")
    assert code == 2 and "--device nonsense" in text.err
    code, text = output(capsys, "replay", folder, "--op", "aten::nosuch")
    assert code == 2 and "matches --op 'aten::nosuch'" in text.err and "nothing to" not in text.err
    (tmp_path / "empty").mkdir()
    code, text = output(capsys, "replay", tmp_path / "empty", "--op", "aten::nosuch")
    assert code == 2 and "nothing to replay" in text.err
    code, text = output(capsys, "ls", folder, "--op", "aten::nosuch")
    assert code == 0 and not text.out and "matches --op 'aten::nosuch'" in text.err
    with pytest.raises(SystemExit):
        main(["frobnicate"])


def test_problems_are_told_and_the_rest_listed(capsys):
    folder = model_capture()
    whole = len(captures.open(folder))
    log = os.path.join(folder, captures.LOG)
    os.truncate(log, os.path.getsize(log) - 400)
    code, text = output(capsys, "ls", folder)
    assert code == 1 and "ends inside a frame" in text.err
    assert whole - 4 <= len(text.out.splitlines()) < whole


def test_export_and_import_and_back(capsys):
    folder = model_capture()
    assert output(capsys, "export", folder, "folders", "--op", "aten::(addmm|gelu|mm)")[0] == 0
    assert os.path.exists("folders/torch.ops.aten.gelu.default")
    assert main(["replay", "folders", "--device", "cpu"]) == 0
    assert output(capsys, "import", "folders", "--out", "back")[0] == 0
    again = captures.open("back")
    assert {r.op for r in again} == {
        "torch.ops.aten.addmm.default",
        "torch.ops.aten.gelu.default",
        "torch.ops.aten.mm.default",
    }
    hashes = {r.args[0].hash for r in captures.open(folder).select(op="aten::gelu")}
    assert {r.args[0].hash for r in again.select(op=".*gelu.*")} == hashes
    assert main(["replay", "back", "--device", "cpu"]) == 0


def test_export_leaves_out_what_computes_nothing(capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")

    def calls():
        torch.ones(2, 3).t().view(torch.int32).detach(), torch.empty(3)

    tool = op_tools.OpCapture()
    with tool:
        calls()
    code, text = output(capsys, "export", tool.folder, "to")
    left = "4 left out (views, uninitialised memory: nothing to export)"
    assert code == 0 and text.err == ""
    assert text.out == f"to: 1 call, 0 could not be exported; {left}\n"
    assert os.listdir("to") == ["torch.ops.aten.ones.default"]
    tool.views = True  # their contents are captured: there is something to export
    with tool:
        calls()
    code, text = output(capsys, "export", tool.folder, "all")
    assert code == 0 and text.out.startswith("all: 4 calls, 0 could not be exported; 1 left out")


def test_export_says_what_it_cannot(capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    tool = op_tools.OpCapture()
    with tool:
        torch.ones(3).to_sparse()
    code, text = output(capsys, "export", tool.folder, "to", "--op", "aten::_to_sparse")
    assert code == 1 and "without contents: sparse" in text.err
    assert text.out == "to: 0 calls, 1 could not be exported\n"


def test_import_of_gradients_and_refusal_of_code(capsys, monkeypatch):
    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    layer = nn.Linear(4, 3)
    with op_tools.OpCapture():
        torch.nn.functional.linear(torch.randn(2, 4), layer.weight, layer.bias).sum().backward()
    os.makedirs("op_tools_results/op_capture_results/evil/1/2")

    class Evil:
        def __reduce__(self):
            return os.system, ("touch harmed",)

    torch.save(
        {"name": "torch.add", "args": (Evil(),), "kwargs": {}},
        "op_tools_results/op_capture_results/evil/1/2/input.pth",
    )
    code, text = output(capsys, "import", "op_tools_results/op_capture_results", "--out", "in")
    assert code == 1 and "is not read" in text.err
    assert not os.path.exists("harmed")
    found = captures.open("in")
    linear = next(r for r in found if r.op == "torch.nn.functional.linear")
    assert linear.grad_outputs is not None and linear.grad_inputs is not None
    code, text = output(capsys, "replay", "in", "--device", "cpu")
    assert code == 0, text.out
    assert "torch.nn.functional.linear" in text.out


def test_python_dash_m():
    folder = model_capture()
    run = interpreter.run(
        ["-m", "op_tools", "ls", folder, "--limit", "2"],
    )
    assert run.returncode == 0 and len(run.stdout.splitlines()) == 2, run.stderr


# ---- the command itself -----------------------------------------------------------------
@pytest.mark.parametrize(
    "words", [["--version"], ["report", "--version"], ["first-bad", "x.py", "--version"]]
)
def test_the_version_anywhere(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    assert re.fullmatch(r"op-tools \d+\.\d+\.\d+\n", capsys.readouterr().out)


@pytest.mark.parametrize("words", [["--lang", "zh", "--help"], ["report", "--lang=zh", "--help"]])
def test_help_in_chinese(words, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    with pytest.raises(SystemExit):
        main(words)
    assert "HTML" in (said := capsys.readouterr().out) and "生成一个" in said
    with pytest.raises(SystemExit):
        main(["--lang", "fr", "ls"])
    assert "invalid choice: 'fr'" in capsys.readouterr().err


def test_the_language_of_the_environment(monkeypatch):
    """Whether the locale is installed or not; where standard output cannot show it, English."""
    import io
    import sys

    from op_tools.core import language

    monkeypatch.setenv("LC_ALL", "zh_CN.GB18030.no")
    for encoding, spoken in (("utf-8", "zh"), ("ascii", "en")):
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
        assert language.language() == "zh" and language.spoken() == spoken
    monkeypatch.setenv("LC_ALL", "C")
    assert language.language() == "en"


@pytest.mark.parametrize("columns", [40, 60])
def test_lines_fit_the_terminal(columns, capsys, monkeypatch):
    folder = writer_capture("wide", 3, text="_with_a_long_name_that_goes_on")
    monkeypatch.delenv("COLUMNS", raising=False)
    free = output(capsys, "ls", folder)[1].out
    monkeypatch.setenv("COLUMNS", str(columns))
    fitted = output(capsys, "ls", folder)[1].out
    assert max(map(len, free.splitlines())) > 60 >= max(map(len, fitted.splitlines()))
    assert max(map(len, fitted.splitlines())) <= columns
    assert re.sub(r"\s", "", fitted) == re.sub(r"\s", "", free)
