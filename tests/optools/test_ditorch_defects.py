# SPDX-License-Identifier: Apache-2.0
"""What ditorch's tools got wrong, one test each, numbered as in reference/ditorch.md 4.4."""

import contextlib
import csv
import math
import os
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import interpreter
import op_tools
import pytest
import torch
from op_tools import captures, utils
from op_tools.base_hook import OpAutoCompareHook
from optools_helpers import TOOLS, acted, ops
from programs import program
from torch import nn
from torch.nn import functional as F


@contextlib.contextmanager
def autocompare(capsys):
    """OpAutoCompare around a block; gives a list that holds the tool and its output afterwards."""
    found = []
    tool = op_tools.OpAutoCompare()
    capsys.readouterr()
    with tool:
        yield found
    found += [tool, capsys.readouterr().out]


def wrong(tool):
    return [(f["op"], f["reason"]) for f in tool.findings() if f["verdict"] in ("warn", "error")]


def api_rows():
    """ditorch's rows of API calls, as the last file has them: [(name, allclose)]."""
    files = Path("op_tools_results/op_autocompare_result").glob("op_autocompare_info_pid*.csv")
    with open(max(files, key=os.path.getmtime), newline="") as file:
        return [(row["name"].rstrip(), row["allclose"]) for row in csv.DictReader(file)]


FORMS = pytest.mark.parametrize("verbose", ["", "ditorch"])


def test_01_fallback_loses_every_mutation(accelerator, capsys):
    x, o = torch.zeros(3, device=accelerator), torch.zeros(3, device=accelerator)
    parameter = nn.Parameter(torch.ones(3, device=accelerator))
    optimizer = torch.optim.SGD([parameter], lr=0.5)
    tool = op_tools.OpFallback()
    with tool:
        x.add_(1)
        x[0] = 5
        torch.add(x, x, out=o)
        parameter.sum().backward()
        optimizer.step()
    assert x.cpu().tolist() == [5, 1, 1]
    assert o.cpu().tolist() == [10, 2, 2]
    assert parameter.detach().cpu().tolist() == [0.5, 0.5, 0.5]
    forms = {"aten::add_.Tensor", "aten::add.out", "aten::sum", "aten::_foreach_add_.List"}
    assert forms <= acted(tool)


@pytest.mark.parametrize("tool", ["OpFallback", "OpDtypeCast"])
def test_02_fallback_and_cast_break_aliasing_and_result_types(accelerator, tool, capsys):
    x = torch.zeros(2, 3, device=accelerator, dtype=torch.float16)
    tool = getattr(op_tools, tool)()
    with tool:
        flat = x.view(-1)
        largest = x.max(dim=1)
        flat[4] = 7
    assert flat.data_ptr() == x.data_ptr()
    assert x.cpu()[1, 1] == 7
    assert largest.values.shape == largest.indices.shape == (2,)
    assert type(largest) is torch.return_types.max
    assert "aten::max.dim" in acted(tool)
    assert "aten::view" not in acted(tool)


def test_03_fallbacks_half_retry_is_broken(accelerator, capsys):
    """The CPU has no kernel for half: it computes in float32, and half comes back."""
    x = torch.rand(3, 4).half().to(accelerator).requires_grad_()
    full = torch.rand(3, 4).add(2).to(accelerator)
    with pytest.raises(NotImplementedError):
        torch.special.erfcx(x.detach().cpu())
    tool = op_tools.OpFallback()
    with tool:
        y = torch.special.erfcx(x)
        y.sum().backward()
        with torch.no_grad():
            mixed = torch.special.zeta(x + 2, full)
            by_number = torch.special.zeta(x + 2, full[0, 0])
    assert {"aten::special_erfcx", "aten::special_zeta"} <= acted(tool)
    given = x.detach().cpu().float().requires_grad_()
    expected = torch.special.erfcx(given)
    expected.sum().backward()
    assert y.dtype == x.grad.dtype == torch.float16 and y.requires_grad
    torch.testing.assert_close(y.detach().cpu(), expected.detach().half())
    torch.testing.assert_close(x.grad.cpu(), given.grad.half(), rtol=4e-3, atol=4e-3)
    # One tensor of float32 makes it float32, a number does not.
    base = (given + 2).half().float().detach()
    assert mixed.dtype == torch.float32 and by_number.dtype == torch.float16
    torch.testing.assert_close(mixed.cpu(), torch.special.zeta(base, full.cpu()))
    one = full[0, 0].cpu()
    torch.testing.assert_close(by_number.cpu(), torch.special.zeta(base, one).half())


def test_04_fallback_runs_what_returns_none_twice(accelerator, capsys):
    x = torch.zeros(3, device=accelerator)
    tool = op_tools.OpFallback()
    with tool:
        assert x.__setitem__(0, 1.0) is None
        torch._foreach_add_([x], 1.0)
    assert x.cpu().tolist() == [2, 1, 1]
    counts = {op: count for op, why, count in tool.counts() if not why}
    assert counts["aten::_foreach_add_.Scalar"] == 1


def test_05_cast_loses_in_place_updates_and_promotion(accelerator, capsys):
    half = torch.ones(3, device=accelerator, dtype=torch.float16)
    full = torch.ones(3, device=accelerator)
    tool = op_tools.OpDtypeCast()
    with tool:
        half.add_(1)
        both = half + full
    assert half.cpu().tolist() == [2, 2, 2] and half.dtype == torch.float16
    assert both.dtype == torch.float32
    assert acted(tool) == {"aten::add_.Tensor", "aten::add.Tensor"}


@FORMS
def test_06_compare_raises_into_user_code(device, capsys, monkeypatch, verbose):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", verbose)
    x = torch.randn(4, 3, device=device, requires_grad=True)
    o = torch.empty(4, 3, device=device)
    with autocompare(capsys) as found:
        torch.add(x.detach(), 1, out=o)
        torch.exp(o, out=o)
        torch.stack([part.sum() for part in x.unbind()]).sum().backward()
        a, b = (x * 2).chunk(2)
        (a.sum() + 3 * b.sum()).backward()
        torch.split(x, 2)[1].sum().backward()
    assert x.grad.cpu()[:, 0].tolist() == [3, 3, 8, 8]
    assert wrong(found[0]) == []
    judged = {(row["op"], row["phase"]) for row in found[0].rows()}
    assert {("aten::add.out", "forward"), ("aten::exp.out", "forward")} <= judged
    assert {("aten::stack", "forward"), ("aten::stack", "backward")} <= judged
    assert {("aten::mul.Tensor", "forward"), ("aten::mul.Tensor", "backward")} <= judged
    if verbose:
        rows = api_rows()
        assert {allclose for _, allclose in rows} == {"True"}
        for name, part in (
            ("torch.add", "output"),
            ("torch.exp", "output"),
            ("torch.stack", "grad[3]"),
            ("torch.Tensor.unbind", "grad"),
            ("torch.Tensor.chunk", "output[1]"),
            ("torch.Tensor.chunk", "grad"),
            ("torch.functional.split", "grad"),
        ):
            assert (f"{name} {part}", "True") in rows


def test_07_gradients_are_judged_by_the_wrong_tolerance(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(16, 32, device=device, dtype=dtype, requires_grad=True)
        w = torch.randn(8, 32, device=device, dtype=dtype, requires_grad=True)
        with autocompare(capsys) as found:
            F.linear(x, w).square().sum().backward()
        assert wrong(found[0]) == []
        name = "| torch.nn.functional.linear grad["
        rows = [line for line in found[1].splitlines() if line.startswith(name)]
        expected = {torch.float32: "0.000010000", torch.bfloat16: "0.001000000"}[dtype]
        assert len(rows) == 2 and all(expected in row for row in rows)
        assert all("0.000000010" not in row for row in rows)


def test_08_the_references_precision_is_thrown_away():
    got = torch.ones(4, dtype=torch.float16)
    reference = torch.full((4,), 1 + 1e-4)
    assert abs(utils.compare_result("x", got, reference)["max_abs_diff"] - 1e-4) < 1e-7
    a, b = torch.zeros(2, dtype=torch.uint8), torch.ones(2, dtype=torch.uint8)
    assert utils.compare_result("x", a, b)["max_abs_diff"] == 1
    big = torch.full((2,), 6e4, dtype=torch.float16)
    assert utils.compare_result("x", big, -big)["max_abs_diff"] == 2 * big[0].item()


def test_09_the_tolerance_of_an_operator_has_no_effect(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    monkeypatch.setenv("LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "0.125,0.25")
    x = torch.randn(4, 3, device=device, requires_grad=True)
    with autocompare(capsys) as found:
        F.linear(x, x).sum().backward()
        x.sin()
    rows = [line for line in found[1].splitlines() if "| torch.nn.functional.linear" in line]
    assert len(rows) >= 3  # inputs, output, gradient
    assert all("0.125000000" in row and "0.250000000" in row for row in rows)
    assert not any("0.125" in line for line in found[1].splitlines() if ".sin " in line)


def test_10_aggregates_hide_the_worst():
    one, nan = torch.ones(2), torch.tensor([1.0, float("nan")])
    for pair in ([nan, one], [one, nan]):
        for a, b in (([one, one], pair), (pair, [one, one])):
            info = utils.compare_result("x", a, b)
            assert info["allclose"] is False and math.isnan(info["max_abs_diff"])
    info = utils.compare_result("x", [one, one], [one, -one])
    assert abs(info["cos_similarity"] + 1) < 1e-9
    i = torch.tensor([1j, 1j])
    assert abs(utils.tensor_cos_similarity(i, -i) + 1) < 1e-9
    zeros = torch.zeros(3)
    assert utils.compare_result("x", zeros, zeros)["cos_similarity"] == 1
    odd = torch.tensor([float("nan"), float("inf"), 1.0])
    info = utils.compare_result("x", odd, odd.clone())
    assert info["allclose"] is True and info["max_abs_diff"] == 0 and info["cos_similarity"] == 1


def test_11_random_functions_are_reported_as_wrong(device, capsys, monkeypatch):
    x = torch.ones(400, device=device)
    with autocompare(capsys) as found:
        F.dropout(x, 0.5)
        F.rrelu(-x, training=True)
        F.gumbel_softmax(x)
        torch.bernoulli(x / 2)
    assert wrong(found[0]) == []
    judged = {row["op"] for row in found[0].rows() if row["verdict"] == "pass"}
    assert {"aten::bernoulli", "aten::exponential_", "aten::rrelu_with_noise"} <= judged
    assert judged & {"aten::native_dropout", "aten::bernoulli_.float"}
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    OpAutoCompareHook("torch.nn.functional.dropout", F.dropout)(x, 0.5)
    text = capsys.readouterr().out
    assert "is random: its values are not compared" in text
    OpAutoCompareHook("torch.nn.functional.dropout", F.dropout)(x, 0.0)
    assert "torch.nn.functional.dropout output" in capsys.readouterr().out


@FORMS
def test_12_int_devices_and_strides_are_lost(accelerator, capsys, monkeypatch, verbose):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", verbose)
    from op_tools.ditorch_compat.reference_call import ReferenceCall

    reference = ReferenceCall("torch.ones", torch.ones, (3,), {"device": 0})
    assert reference.run().device.type == "cpu"
    base = torch.arange(6.0, device=accelerator)
    views = (base.as_strided((3, 2), (1, 2)), base.expand(4, 6), base.view(2, 3).t())
    for view in views:
        (copy,) = ReferenceCall("torch.sin", torch.sin, (view,), {}).args
        assert copy.stride() == view.stride() and torch.equal(copy, view.cpu())
    with autocompare(capsys) as found:
        for view in views:
            torch.sin(view)
        torch.ones(3, device=0)
    assert wrong(found[0]) == []
    assert [row["op"] for row in found[0].rows()] == ["aten::sin"] * 3 + ["aten::ones"]
    if verbose:
        assert api_rows() == [("torch.sin output", "True")] * 3 + [("torch.ones output", "True")]


@FORMS
def test_13_tools_raise_on_empty_sparse_and_named(device, capsys, monkeypatch, verbose):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", verbose)
    Pair = namedtuple("Pair", "a b")
    empty = torch.empty(0, 3, device=device)
    sparse = torch.eye(3).to_sparse()
    pair = Pair(torch.ones(2, device=device), torch.ones(2, device=device))
    for name in TOOLS:
        tool = getattr(op_tools, name)()
        with tool:
            assert torch.sin(empty).shape == (0, 3)
            assert empty.sum().item() == 0
            if device == "cpu":
                assert torch.sparse.mm(sparse, torch.ones(3, 2)).shape == (3, 2)
            assert torch.stack(pair).shape == (2, 2)
        if name == "OpOverflowCheck":
            assert tool._last.checked >= 4
        elif name == "OpDtypeCast" or (name == "OpFallback" and device == "cpu"):
            assert {op for op, why, _ in tool.counts() if why} >= {"aten::sin", "aten::stack"}
        else:
            assert {"aten::sin", "aten::sum", "aten::stack"} <= acted(tool), name


def test_14_stopping_one_tool_removes_another(device, capsys):
    x = torch.ones(3, device=device)
    a, b = op_tools.OpObserve(), op_tools.OpObserve()
    a.start()
    b.start()
    a.stop()
    torch.sin(x)
    b.stop()
    torch.cos(x)
    assert ops(a) == []
    assert ops(b) == ["aten::sin"]


@pytest.mark.parametrize("form", ["native", "ditorch"])
def test_15_capture_writes_whole_storages(device, capsys, monkeypatch, form):
    monkeypatch.setenv("OP_CAPTURE_FORMAT", form)
    large = torch.ones(1_000_000, device=device)
    one, another = large[:1], large[1:2]
    tool = op_tools.OpCapture()
    with tool:
        torch.sin(one)
        torch.sin(another)
    written = sum(path.stat().st_size for path in Path().rglob("*") if path.is_file())
    assert written < 100_000
    if form == "native":  # equal contents are kept once; what was read is on the cpu
        capture = captures.open(tool.folder)
        sins = [record for record in capture if record.op == "aten::sin"]
        assert len(sins) == 2 and sins[0].args[0].hash == sins[1].args[0].hash
        assert sins[0].load()[0][0].tolist() == [1]
        return
    files = list(Path().rglob("input.pth"))
    assert len(files) == 2
    for path in files:
        (tensor,) = torch.load(path, weights_only=True)["args"]
        assert tensor.device.type == "cpu" and tensor.tolist() == [1]
        assert tensor.untyped_storage().nbytes() == 4


def test_16_backward_times_are_counted_several_times(device, capsys):
    x = torch.ones(4, 3, device=device, requires_grad=True)
    tool = op_tools.OpTimeMeasure()
    with tool:
        parts = x.unbind()
        (parts[0] + parts[1] + parts[2] + parts[3]).sum().backward()
    backward = [s.op for s in tool.samples() if s.phase == "backward"]
    assert sum(op.startswith("aten::stack") for op in backward) == 1
    assert all(s.launch_ns > 0 for s in tool.samples())


def test_17_importing_prints_and_pollutes_the_environment():
    code = (
        "import os; before = dict(os.environ)\n"
        "import op_tools, op_tools.utils, op_tools.base_hook, op_tools.op_runner\n"
        "import torch\n"
        "with op_tools.OpObserve(), op_tools.OpTimeMeasure(): torch.ones(2).sin()\n"
        "op_tools.utils.get_option('OP_TOOLS_MAX_CACHE_SIZE', '7')\n"
        "assert dict(os.environ) == before, set(os.environ) ^ set(before)\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    quiet = "import op_tools, op_tools.utils, op_tools.base_hook, op_tools.op_runner"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "OP_TOOLS_DEVICE": "cpu"}
    for text, said in ((quiet, ""), (code, None)):
        done = interpreter.run(["-c", text], env=environment)
        assert done.returncode == 0, done.stderr
        assert said is None or done.stdout + done.stderr == said


PROCESS = program(__file__, "_process")


def test_18_collectives_are_broken_by_the_alias_layer(tmp_path):
    # On the cpu: two processes of NCCL's do not share a GPU.
    hidden = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "CUDA_VISIBLE_DEVICES": ""}
    environment = {**os.environ, **hidden, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROCESS, str(tmp_path / "store")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    children = [
        subprocess.Popen([*command, str(rank)], env=environment, **pipes) for rank in range(3)
    ]
    try:
        for child in children:
            said, errors = child.communicate(timeout=300)
            assert child.returncode == 0, errors
            assert said.rstrip().endswith("through")
    finally:
        for child in children:  # the others wait for the one that failed
            child.kill()
            child.wait()
