# SPDX-License-Identifier: Apache-2.0
"""op-tools self-check: a script with and without each tool, bit by bit."""

import re

import pytest
from op_tools.cli import main, self_check_command
from optools_devices import DEVICES

pytestmark = pytest.mark.usefixtures("forked_runs")

SCRIPT = """
import sys
import torch
from torch import nn

device, *more = sys.argv[1:]
if device == "npu":
    import torch_npu
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4)).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.randn(5, 8).to(device)
for _ in range(2):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.fixture
def check(tmp_path, capsys):
    def run(text, *arguments):
        path = tmp_path / "train.py"
        path.write_text(text)
        capsys.readouterr()
        code = main(["self-check", str(path), *arguments])
        return code, capsys.readouterr()

    return run


def test_every_tool_changes_nothing(check, monkeypatch):
    """On one device: nine processes are enough."""
    device = DEVICES[-1]
    monkeypatch.setenv("OP_TOOLS_DEVICE", device)
    code, text = check(SCRIPT, device)
    assert code == 0, text
    lines = text.out.splitlines()
    assert [line.split()[0].rstrip(":") for line in lines[:-1]] == list(self_check_command.TOOLS)
    assert lines[-1] == "7 of 7 tools change nothing"
    for line in lines[:-1]:
        # Twice: the model's result, the loss, four gradients, four parameters.
        assert re.search(
            r": 20 tensors bit-equal .*; a step takes \S+ ms instead of \S+ \(\S+x\)", line
        )


def test_a_tool_that_changes_results_is_found(check, monkeypatch):
    """OpDtypeCast let loose: every operator in another dtype."""
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "torch.float32->torch.bfloat16")
    monkeypatch.setitem(self_check_command.TOOLS, "OpDtypeCast", {})
    code, text = check(SCRIPT, "--tool", "OpDtypeCast", "--", "cpu")
    assert code == 1
    assert (
        "OpDtypeCast changes the results of the program: step 0, result of Sequential, torch.float32"
        in text.out
    )
    assert "0 of 1 tools change nothing" in text.out


def test_a_tool_that_makes_the_script_fail_is_found(check, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    tail = "\nfrom op_tools.core import op_tool\nassert not op_tool._running, 'not alone'\n"
    code, text = check(SCRIPT + tail, "--tool", "OpObserve", "--", "cpu")
    assert code == 1 and "ended with code 1: AssertionError: not alone" in text.out


def test_a_script_that_is_never_the_same(check, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    code, text = check(SCRIPT.replace("import sys\n", "import os, sys\n").replace(
        "x = torch", "torch.manual_seed(os.getpid())\nx = torch"), "cpu", "--tool", "OpObserve")  # fmt: skip
    assert code == 1 and "another result the second time: step 0, result of Sequential" in text.out


def test_gradients_asked_for_by_hand(check, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    script = "import torch\nw = torch.ones(3, requires_grad=True)\ntorch.autograd.grad(w.sin().sum(), w)\n"
    code, text = check(script, "--tool", "OpAutoCompare")
    assert code == 0 and "2 tensors bit-equal" in text.out and "the run takes" in text.out


def test_wrong_use(check, monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    for script, arguments, said in (
        (SCRIPT, ["--tool", "OpNothing"], "expected all, or one of OpObserve"),
        ("import torch\ntorch.ones(3).sin()\n", [], "nothing to compare"),
        ("raise RuntimeError('no good')\n", [], "ended with code 1: RuntimeError: no good"),
    ):
        code, text = check(script, *arguments)
        assert code == 2 and said in text.err, text
    assert main(["self-check", "nowhere.py"]) == 2


def test_as_a_flag(check, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    check("", "--tool", "OpNothing")
    capsys.readouterr()
    assert main(["--self-check", str(tmp_path / "train.py"), "--tool", "OpObserve"]) == 2
    assert "nothing to compare" in capsys.readouterr().err
