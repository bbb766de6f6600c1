# SPDX-License-Identifier: Apache-2.0
"""Lists of operator and API names, and what is wrong with them."""

import linecache
import warnings

import op_tools
import pytest
import torch
from torch.nn import functional as F


def observed(monkeypatch, run, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    tool = op_tools.OpObserve()
    with tool:
        run()
    return tool.records()


def test_operator_names_with_and_without_overload(device, monkeypatch):
    x = torch.ones(3, device=device)

    def run():
        x + x
        x.sin()
        x * x

    records = observed(monkeypatch, run, OP_OBSERVE_LIST="aten::add, aten::mul.Tensor")
    assert [r["op"] for r in records] == ["aten::add.Tensor", "aten::mul.Tensor"]


@pytest.mark.parametrize("wanted", ["", "aten::sin", "torch.Tensor.sin"])
def test_everything_disabled(device, monkeypatch, wanted):
    x = torch.ones(3, device=device)
    variables = {"OP_OBSERVE_LIST": wanted} if wanted else {}
    assert observed(monkeypatch, x.sin, OP_OBSERVE_DISABLE_LIST=".*", **variables) == []


def test_disabled_operators(device, monkeypatch):
    x = torch.ones(3, device=device)

    def run():
        x + x
        x.sin()

    records = observed(monkeypatch, run, OP_OBSERVE_DISABLE_LIST="aten::add.*")
    assert [r["op"] for r in records] == ["aten::sin"]


def test_an_api_name_selects_its_kernels_and_their_backward(device, monkeypatch):
    x = torch.randn(2, 3, 4, device=device)
    w = torch.randn(5, 4, device=device, requires_grad=True)

    def run():
        (F.linear(x, w).sin() + 1).sum().backward()

    records = observed(monkeypatch, run, OP_OBSERVE_LIST="torch.nn.functional.linear")
    assert {r["api"] for r in records} == {"torch.nn.functional.linear"}
    kernels = {(r["op"].split(".")[0], r["phase"]) for r in records}
    assert ("aten::mm", "forward") in kernels or ("aten::addmm", "forward") in kernels
    assert ("aten::mm", "backward") in kernels  # the weight's gradient
    assert not any("sin" in r["op"] or "cos" in r["op"] for r in records)
    assert len({r["api_call"] for r in records}) == 1


def test_disabled_apis(device, monkeypatch):
    x = torch.randn(3, device=device, requires_grad=True)

    def run():
        (x.sin() * x.exp()).sum().backward()

    records = observed(monkeypatch, run, OP_OBSERVE_DISABLE_LIST="torch.Tensor.sin")
    names = {r["op"] for r in records}
    assert "aten::exp" in names
    assert not names & {"aten::sin", "aten::cos"}


def test_alternatives_and_groups(device, monkeypatch):
    x = torch.ones(3, device=device)

    def run():
        torch.add(x, x)
        torch.sub(x, x)
        torch.mul(x, x)

    records = observed(monkeypatch, run, OP_OBSERVE_LIST=r"torch\.(add|sub)")
    assert [r["api"] for r in records] == ["torch.add", "torch.sub"]


@pytest.mark.parametrize(
    "name, near", [("aten::adddmm", "aten::addmm"), ("torch.nn.functional.linaer", "linear")]
)
def test_an_unknown_name_is_warned_about_once(device, monkeypatch, name, near):
    from op_tools.core import operator_lists

    operator_lists._warned.clear()
    monkeypatch.setenv("OP_OBSERVE_LIST", name)
    with pytest.warns(UserWarning, match=f"no operator is called '{name}'.*{near}"):
        with op_tools.OpObserve():
            pass
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with op_tools.OpObserve():
            pass
    assert operator_lists._warned == {name}


def start_and_stop(tool):
    tool.start()  # here
    tool.stop()


def within(tool):
    with tool:  # here
        pass


@pytest.mark.parametrize("begin", [start_and_stop, within])
def test_the_warning_points_at_the_users_line(monkeypatch, begin):
    from op_tools.core import operator_lists

    operator_lists._warned.clear()
    monkeypatch.setenv("OP_OBSERVE_LIST", "aten::adddmm")
    with pytest.warns(UserWarning, match="aten::adddmm") as told:
        begin(op_tools.OpObserve())
    (warning,) = told
    assert warning.filename == __file__
    assert linecache.getline(__file__, warning.lineno).strip().endswith("# here")


@pytest.mark.parametrize(
    "variable, value, said",
    [
        ("OP_OBSERVE_LIST", "torch.(add", "no regular expression"),
        ("OP_TOOLS_DEVICE", "toaster", "is no device"),
        ("OP_TOOLS_VERBOSE", "loud", "expected nothing or one of"),
        ("OP_OBSERVE_MEMORY_MB", "much", "expected a whole number"),
    ],
)
def test_malformed_variables_are_named(monkeypatch, variable, value, said):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=said) as error:
        op_tools.OpObserve().start()
    assert variable in str(error.value)


def test_the_environment_is_never_written(device):
    import os

    before = dict(os.environ)
    with op_tools.OpObserve(), op_tools.OpOverflowCheck():
        torch.ones(2, device=device).sin()
    assert dict(os.environ) == before


@pytest.mark.parametrize(
    "tool, variable, value, said",
    [
        ("OpCapture", "OP_CAPTURE_FORMAT", "zip", "expected nothing or one of native, ditorch"),
        ("OpDtypeCast", "OP_DTYPE_CAST_DICT", "torch.half", "is not of the form"),
        ("OpAutoCompare", "AUTOCOMPARE_ERROR_TOLERANCE", "1e-3", "expected two numbers"),
        ("OpAutoCompare", "ADD_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT32", "x,y", "expected two numbers"),
        ("OpAutoCompare", "OP_AUTOCOMPARE_DISABLE_LIST", "torch.(", "no regular expression"),
        ("OpTimeMeasure", "OP_TIME_MEASURE_LIMIT", "1e6", "expected a whole number"),
        ("OpCapture", "OP_TOOLS_VERBOSE", "ditorch-2023", "expected nothing or one of ditorch"),
    ],
)
def test_malformed_variables_of_every_tool(monkeypatch, tool, variable, value, said):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    monkeypatch.setenv(variable, value)
    with pytest.raises(ValueError, match=said) as error:
        getattr(op_tools, tool)().start()
    assert variable in str(error.value) and value in str(error.value)


def test_an_unknown_name_in_any_list(device, monkeypatch):
    from op_tools.core import operator_lists

    for family, tool in (("CAPTURE", "OpCapture"), ("FALLBACK", "OpFallback")):
        operator_lists._warned.clear()
        monkeypatch.setenv(f"OP_{family}_DISABLE_LIST", "torch.Tensor.srot")
        with pytest.warns(UserWarning, match="torch.Tensor.srot.*torch.Tensor.sort"):
            with getattr(op_tools, tool)():
                pass
