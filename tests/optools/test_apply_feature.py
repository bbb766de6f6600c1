# SPDX-License-Identifier: Apache-2.0
"""apply_feature: a tool on chosen functions, taken back without a trace."""

import sys
import threading
import types

import op_tools
import pytest
import torch
from op_tools.ditorch_compat import features
from optools_helpers import acted
from torch import add as imported_add
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def all_taken_back():
    yield
    assert not features._applied and not features._shared


def observed(capsys):
    """operator -> calls, from OpObserve's summary."""
    found = {}
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("OpObserve: aten::"):
            found[line.split()[1]] = line
    return found


def test_a_name_and_its_backward(device, capsys):
    x = torch.ones(3, device=device, requires_grad=True)
    with op_tools.apply_feature("torch.mul", "dump_op_args"):
        torch.mul(x, torch.full_like(x, 2.0)).sin().sum().backward()
    found = observed(capsys)
    assert set(found) == {"aten::mul.Tensor"}
    assert "forward 1" in found["aten::mul.Tensor"] and "backward 1" in found["aten::mul.Tensor"]


def test_a_function_is_found_under_every_name(device, capsys):
    x, w = torch.ones(2, 3, device=device), torch.ones(4, 3, device=device)
    original = F.linear
    done = op_tools.apply_feature([F.linear], "dump_op_args")
    assert F.linear is not original
    nn.functional.linear(x, w)
    done.undo()
    assert F.linear is original and torch._C._nn.linear is original
    assert any("mm" in name for name in observed(capsys))


def test_what_was_imported_before_is_covered(device, capsys):
    x = torch.ones(3, device=device)
    original = imported_add
    with op_tools.apply_feature("torch.add", "dump_op_args"):
        imported_add(x, x)
    assert imported_add is original is torch.add
    assert "aten::add.Tensor" in observed(capsys)


def test_tensor_methods(device, capsys):
    x = torch.ones(3, device=device)
    before = torch.Tensor.add
    with op_tools.apply_feature("torch.Tensor.add", "dump_op_args"):
        assert x.add(1).cpu().tolist() == [2, 2, 2]
        assert torch.Tensor.add(x, 1, alpha=2).cpu().tolist() == [3, 3, 3]
    assert "add" not in vars(torch.Tensor) and torch.Tensor.add is before
    assert "forward 2" in observed(capsys)["aten::add.Tensor"]


def test_third_party_functions_and_their_modules(device, capsys, monkeypatch):
    library = types.ModuleType("some_library")
    exec(
        "import torch\n"
        "def scale(x, by=2):\n    return x * by\n"
        "def shift(x):\n    return x + 1\n"
        "def _hidden(x):\n    return x.sin()\n",
        library.__dict__,
    )
    monkeypatch.setitem(sys.modules, "some_library", library)
    x = torch.ones(3, device=device)
    with op_tools.apply_feature("some_library.scale", "dump_op_args"):
        assert library.scale(x, by=3).cpu().tolist() == [3, 3, 3]
        library.shift(x)
    assert set(observed(capsys)) == {"aten::mul.Tensor"}
    with op_tools.apply_feature([library], "dump_op_args"):
        library.scale(x)
        library.shift(x)
        library._hidden(x)
    assert set(observed(capsys)) == {"aten::mul.Tensor", "aten::add.Tensor"}


def test_neural_modules(device, capsys):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).to(device)
    x = torch.ones(2, 3, device=device)
    with op_tools.apply_feature([model[1]], "dump_op_args"):
        model(x)
    assert set(observed(capsys)) == {"aten::relu"}
    assert "forward" not in vars(model[1])
    with op_tools.apply_feature([nn.ReLU], "dump_op_args"):
        model(x)
    assert set(observed(capsys)) == {"aten::relu"}


def test_condition(device, capsys):
    half = torch.ones(3, device=device, dtype=torch.float16)
    full = torch.ones(3, device=device)
    with op_tools.apply_feature(
        "torch.add", "dump_op_args", condition_func=lambda a, b, **_: a.dtype == torch.float16
    ):
        torch.add(half, half)
        torch.add(full, full)
        torch.add(full, full)
    assert "forward 1" in observed(capsys)["aten::add.Tensor"]


def test_condition_holds_while_another_tool_asks_for_names(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_TIME_MEASURE_LIST", "torch.add")
    x = torch.ones(3, device=device)
    timer = op_tools.OpTimeMeasure()
    with op_tools.apply_feature("torch.add", "dump_op_args", lambda a, b: False), timer:
        torch.add(x, x)
    with op_tools.apply_feature("torch.add", "dump_op_args"), timer:
        torch.add(x, x)
    assert [s.op for s in timer.samples()] == ["aten::add.Tensor"]
    assert "aten::add.Tensor" in observed(capsys)


def test_lists_still_filter(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_OBSERVE_DISABLE_LIST", "torch.add")
    x = torch.ones(3, device=device)
    with op_tools.apply_feature(["torch.add", "torch.sub"], "dump_op_args"):
        torch.add(x, x)
        torch.sub(x, x)
    assert set(observed(capsys)) == {"aten::sub.Tensor"}


def test_applying_again_replaces(accelerator, capsys):
    x = torch.ones(3, device=accelerator)
    first = op_tools.apply_feature("torch.add", "fallback")
    second = op_tools.apply_feature("torch.add", "dump_op_args")
    torch.add(x, x)
    assert "fallback on torch.add is replaced by dump_op_args" in capsys.readouterr().out
    second.undo()
    first.undo()
    assert "aten::add.Tensor" in observed(capsys)


@pytest.mark.parametrize("feature", list(features.FEATURES))
def test_each_feature_leaves_results_as_they_are(accelerator, capsys, feature):
    x = torch.randn(4, 5, device=accelerator, dtype=torch.float16, requires_grad=True)
    names = ["torch.add", "torch.sub", "torch.mul", "torch.div"]
    with op_tools.apply_feature(names, feature):
        tool = features._shared[feature].tool
        y = torch.div(torch.mul(torch.add(x, x), 2), 3)
        y.backward(torch.ones_like(y))
    torch.testing.assert_close(y.cpu(), x.detach().cpu() * 4 / 3, rtol=1e-3, atol=1e-3)
    assert x.grad.dtype == torch.float16 and y.device.type == accelerator
    expected = torch.full((4, 5), 4 / 3).half()
    torch.testing.assert_close(x.grad.cpu(), expected, rtol=1e-3, atol=1e-3)
    if feature == "overflow_check":
        assert tool._last.checked >= 6
    else:
        assert {"aten::add.Tensor", "aten::mul.Tensor", "aten::div.Tensor"} <= acted(tool)


def test_every_thread(device, capsys):
    x = torch.ones(3, device=device)
    with op_tools.apply_feature("torch.add", "dump_op_args"):
        threads = [threading.Thread(target=lambda: torch.add(x, x)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "forward 3" in observed(capsys)["aten::add.Tensor"]


def test_wrong_arguments():
    with pytest.raises(AssertionError, match=r"expected one of dump_op_args, .*fallback"):
        op_tools.apply_feature("torch.add", "magic")
    with pytest.raises(AssertionError, match="expected a name"):
        op_tools.apply_feature(3, "fallback")
    before = torch.add
    with pytest.raises(AttributeError):
        op_tools.apply_feature(["torch.add", "torch.no_such_operator"], "dump_op_args")
    assert torch.add is before


def test_ditorch_lines(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    x = torch.ones(3, device=device)
    with op_tools.apply_feature("torch.add", "dump_op_args"):
        torch.add(x, x)
        torch.sub(x, x)
    text = capsys.readouterr().out
    assert "apply OpObserveHook on torch.add\n" in text and "torch.sub" not in text


def test_scripting_and_compiling_while_applied(device, capsys):
    x = torch.ones(3, device=device)

    def function(x):
        return torch.add(x, x) * 2

    with op_tools.apply_feature("torch.add", "dump_op_args"):
        assert torch.jit.script(function)(x).cpu().tolist() == [4, 4, 4]
        assert torch.compile(function, backend="eager")(x).cpu().tolist() == [4, 4, 4]
    assert torch.jit.script(function)(x).cpu().tolist() == [4, 4, 4]


def test_capture_in_ditorchs_folders(device, capsys, monkeypatch):
    from op_tools.ditorch_compat import ditorch_folders

    monkeypatch.setenv("OP_CAPTURE_FORMAT", "ditorch")
    x = torch.ones(3, device=device)
    with op_tools.apply_feature("torch.add", "op_capture"):
        torch.add(x, x)
        torch.sub(x, x)
    (folder,) = ditorch_folders.find(".")
    assert ditorch_folders.load(folder).name == "torch.add"
