# SPDX-License-Identifier: Apache-2.0
"""op-tools first-bad: a wrong kernel in a script is named, with a reproducer that stands alone."""

import os
import re
import subprocess
import sys

import pytest
from op_tools import captures, first_bad, reproducer
from op_tools.cli import main
from optools_helpers import output

SCRIPT = """
import sys
import warnings

import torch
from torch import nn

device, fault = sys.argv[1:3]
if device == "npu":
    import torch_npu
warnings.simplefilter("ignore")
library = torch.library.Library("aten", "IMPL")
key = {"cpu": "CPU", "cuda": "CUDA", "npu": "PrivateUse1"}[device]


def wrong(x, *, approximate="none"):
    result = 0.5 * x * (1 + torch.erf(x / 2**0.5))
    if x.dtype == torch.float32:
        result.view(-1)[3] *= 1.01
    return result


if fault == "gelu":
    library.impl("gelu", wrong, key)
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
x = torch.randn(5, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(2):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    print("loss", loss.item())
if fault == "raise":
    raise RuntimeError("it was to be")
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.delenv("OP_TOOLS_DEVICE", raising=False)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def hunt(capsys, *arguments):
    return output(capsys, "first-bad", *arguments)


def expect_gelu(code, text):
    assert code == 1, text
    assert re.search(r"first bad: aten::gelu, call \d+ of \d+, forward, step 0", text.out), text.out
    assert re.search(r"\(E \d", text.out) and "module: 1" in text.out
    assert re.search(r"at: .*train\.py:\d+ ", text.out)
    assert re.search(r"output\[0, 3\] is .*, float64 ", text.out)
    return re.search(r"reproducer: (.*reproduce\.py)", text.out)[1]


def test_a_wrong_kernel_of_the_cpu(script, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    code, text = hunt(capsys, script, "cpu", "gelu", "-o", "found")
    path = expect_gelu(code, text)
    run = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    with open(path, encoding="utf-8") as file:
        assert "op_tools" not in file.read()
    far = [float(found) for found in re.findall(r"at most (\S+) from", run.stdout)]
    assert far[0] < 1e-6 < 1e-5 < far[1]  # right in that process, and not what was captured
    ((folder, held),) = reproducer.find("found")
    assert held["op"] == "aten::gelu" and os.path.dirname(path) == folder
    assert main(["report", "found/device", "-o", "page.html"]) == 0
    assert "1 reproducers" in capsys.readouterr().out


def test_a_right_script(script, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    code, text = hunt(capsys, script, "cpu", "none")
    assert code == 0 and "no operator is wrong" in text.out


def test_against_the_cpu(script, capsys, accelerator, monkeypatch):
    monkeypatch.delenv("OP_TOOLS_DEVICE")
    code, text = hunt(capsys, script, accelerator, "gelu", "--reference", "cpu", "-o", "found")
    expect_gelu(code, text)
    assert "inputs: " in text.out and "no such call" not in text.out
    calls, matched, others = re.search(r"(\d+) calls, (\d+) .* with (\d+) of", text.out).groups()
    assert int(matched) == int(calls) == int(others) > 40
    code, text = hunt(capsys, script, accelerator, "none")
    assert code == 0, text.out


def test_against_a_capture(script, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    hunt(capsys, script, "cpu", "none", "-o", "good")
    (good,) = captures.find("good")
    code, text = hunt(capsys, script, "cpu", "gelu", "--reference", "capture", good)
    expect_gelu(code, text)
    assert "inputs: the same bits as in the reference" in text.out


def test_bisection_leaves_one():
    names = [f"aten::op{i}" for i in range(37)]
    for bad in (names[0], names[17], names[36]):
        found, runs = first_bad.bisect(names, lambda on_cpu, bad=bad: bad in on_cpu)
        assert found == bad and runs <= 7
    assert first_bad.bisect(names, lambda on_cpu: False)[0] is None
    two = {names[1], names[30]}
    assert first_bad.bisect(names, lambda on_cpu: two <= set(on_cpu))[0] is None
    assert first_bad.bisect([], lambda on_cpu: False)[0] is None


def test_bisection_where_no_call_is_wrong_by_itself(script, capsys, accelerator, monkeypatch):
    """Every verdict a pass: only the numbers the script prints tell."""
    monkeypatch.delenv("OP_TOOLS_DEVICE")
    plain = {"verdict": "pass", "reason": "", "worst": 0, "results": []}
    monkeypatch.setattr(first_bad.judging, "judge", lambda record: plain)
    code, text = hunt(capsys, script, accelerator, "gelu", "--rtol", "1e-5")
    assert code == 1, text.out
    assert "good with aten::gelu on the cpu" in text.out and "first bad: aten::gelu" in text.out


def test_a_script_that_fails(script, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    code, text = hunt(capsys, script, "cpu", "raise")
    assert code == 1 and "ended with code 1: RuntimeError: it was to be" in text.out


def test_wrong_use(script, capsys):
    for arguments, said in (
        (["nowhere.py"], "nowhere.py is no file"),
        ([script, "--reference", "moon"], "expected cpu, or: capture DIR"),
        ([script, "--reference", "capture", "nowhere"], "no capture"),
    ):
        code, text = hunt(capsys, *arguments)
        assert code == 2 and said in text.err, text.err
