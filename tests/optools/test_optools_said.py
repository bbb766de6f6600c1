# SPDX-License-Identifier: Apache-2.0
"""What tools say: what they did not judge, first; why they saw nothing; where a NaN came from."""

import itertools
import math
import re
import warnings
from pathlib import Path

import op_tools
import pytest
import torch
from op_tools.core import files, variables
from op_tools.tools import registry
from optools_helpers import TOOLS, quiet
from torch import nn


def lines(capsys):
    return capsys.readouterr().out.splitlines()


# ---- not judged -------------------------------------------------------------------------------------
@pytest.fixture
def library(device):
    """An operator without a kernel on the cpu, or with one that float64 cannot be asked of."""
    lib = torch.library.Library("said", "FRAGMENT")
    lib.define("twice(Tensor x) -> Tensor")
    key = {"cpu": "CPU", "cuda": "CUDA", "npu": "PrivateUse1"}[device]

    def twice(x):
        if x.dtype == torch.float64:
            raise NotImplementedError("no float64 here")
        return x.clone().mul_(2)

    lib.impl("twice", twice, key)
    yield torch.ops.said.twice
    lib._destroy()


def test_what_was_not_judged_comes_first(device, library, capsys):
    x = torch.ones(400, device=device)
    tool = op_tools.OpAutoCompare()
    with tool:
        for _ in range(3):
            library(x)
        x.sin()
        torch.empty(3, device=device)  # nothing to judge
    first = lines(capsys)[0]
    pattern = r"OpAutoCompare: not judged: 3 of 4 calls, 1 operator, (\d+) % of the time: said::twice 3 \(.+\)"
    assert re.fullmatch(pattern.replace(" %", "%"), first), first
    unjudged = tool.unjudged()
    assert (unjudged.calls, unjudged.of) == (3, 4) and 0 < unjudged.time_share <= 1


def test_a_run_with_everything_judged_does_not_speak_of_it(device, capsys):
    with op_tools.OpAutoCompare():
        torch.ones(4, device=device).sin()
        torch.empty(3, device=device)
    assert "not judged" not in capsys.readouterr().out


@pytest.mark.parametrize("limit, fails", [(10, True), (100, False)])
def test_too_much_that_was_not_judged_is_an_error(device, library, limit, fails, monkeypatch):
    monkeypatch.setenv("OP_AUTOCOMPARE_MAX_UNJUDGED", str(limit))
    x = torch.ones(4, device=device)
    tool = quiet(op_tools.OpAutoCompare())
    tool.start()
    library(x)
    x.sin()
    if fails:
        with pytest.raises(op_tools.CompareError, match="over 10 % were not judged: 1 of 2 calls"):
            tool.stop()
    else:
        tool.stop()


def test_a_limit_is_a_percentage(on_cpu, monkeypatch):
    monkeypatch.setenv("OP_AUTOCOMPARE_MAX_UNJUDGED", "many")
    with pytest.raises(ValueError, match=r"OP_AUTOCOMPARE_MAX_UNJUDGED='many'.*from 0 to 100"):
        op_tools.OpAutoCompare().start()


def test_to_have_judged_nothing_is_not_to_have_judged(on_cpu, monkeypatch, capsys):
    tool = op_tools.OpAutoCompare()
    tool.max_unjudged = 5
    tool.start()
    with pytest.raises(op_tools.CompareError, match="no call was seen"):
        tool.stop()


# ---- nothing seen -----------------------------------------------------------------------------------
@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_that_saw_nothing_says_why(accelerator, name, capsys):
    x = torch.ones(3)
    with getattr(op_tools, name)():
        for _ in range(6):
            x.sin().add(1)
    (line,) = lines(capsys)
    assert line == (
        f"{name}: 0 calls on {accelerator}; 12 ran on cpu: OP_TOOLS_DEVICE=cpu watches them"
    )


def test_nothing_ran(device, capsys):
    with op_tools.OpObserve():
        pass
    (line,) = lines(capsys)
    assert line == f"OpObserve: 0 calls on {device}: no operator ran between start() and stop()"


def test_nothing_that_was_asked_for_ran(device, capsys, monkeypatch):
    monkeypatch.setenv("OP_OBSERVE_LIST", "aten::sort")
    x = torch.ones(3, device=device)
    tool = op_tools.OpObserve()
    tool.phases = ("backward",)
    with tool:
        x.sin()
        nn.functional.linear(x.view(1, 3), x.view(1, 3))  # two operators, not three
    (line,) = lines(capsys)
    assert re.fullmatch(
        rf"OpObserve: 0 calls: \d ran on {device}, none that OP_OBSERVE_LIST=aten::sort, "
        r"phases=\('backward',\) asks for",
        line,
    ), line


def test_what_sees_something_is_not_slowed_down(device):
    """The callback that counts calls elsewhere goes when a tool sees its first call."""
    counts = torch._C._autograd._profiler_enabled  # not PyTorch's own profiler
    assert not counts()
    tool, x = quiet(op_tools.OpObserve()), torch.ones(2, device=device)
    with tool:
        x.sin()
        y = torch.ones(2)
        for _ in range(5):
            y.cos()
    assert sum(tool._last.unseen().values()) <= 2


# ---- backward ---------------------------------------------------------------------------------------
def test_a_backward_after_the_block_is_said(device, capsys):
    model = nn.Linear(3, 2).to(device)
    x = torch.ones(2, 3, device=device)
    with op_tools.OpObserve():
        loss = model(x).sum()
    said = [line for line in lines(capsys) if "backward()" in line]
    assert len(said) == 1 and "not watched" in said[0], said
    loss.backward()
    with op_tools.OpObserve():  # followed: nothing to say
        model(x).sum().backward()
    with op_tools.OpObserve(), torch.no_grad():
        model(x).sum()
    with op_tools.OpObserve():
        model(x).sum()  # the graph is gone at once
    tool = op_tools.OpObserve()
    tool.phases = ("forward",)  # backward is not asked for
    with tool:
        kept = model(x).sum()
    assert "backward()" not in capsys.readouterr().out
    del kept


def test_the_last_of_several_steps(device, capsys):
    w = torch.ones(3, device=device, requires_grad=True)
    with op_tools.OpObserve():
        for _ in range(3):
            (w * 2).sum().backward()
        loss = (w * 2).sum()
    (said,) = [line for line in lines(capsys) if "backward()" in line]
    assert "for 2 forward calls" in said
    del loss


# ---- where a NaN came from ----------------------------------------------------------------------------
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.last(self.first(x).tanh())


def story(run, capsys):
    tool = op_tools.OpOverflowCheck()
    with tool:
        run()
    out = lines(capsys)
    assert all(len(line) <= 160 for line in out), out
    return tool, out


def test_a_parameter_that_held_the_nan(device, capsys):
    model = Net().to(device)
    with torch.no_grad():
        model.last.weight[1, 3] = math.nan
    x = torch.ones(3, 4, device=device)
    tool, out = story(lambda: model(x).sum().backward(), capsys)
    assert "last.weight held NaN before aten::" in out[0], out
    assert "module last" in out[1] and "test_optools_said.py:" in out[1]
    assert tool.first() is None and tool.source()["module"] == "last"


def test_a_batch_that_held_the_nan(device, capsys):
    model = Net().to(device)
    x = torch.ones(3, 4)
    x[2, 1] = math.nan
    x = x.to(device)
    _, out = story(lambda: model(x), capsys)
    assert "no parameter, held NaN before aten::addmm" in out[0] and "argument mat1" in out[0], out
    assert "module first" in out[1]


def test_nan_out_of_infinities(device, capsys):
    """A row that is masked as a whole: the infinity was meant, the NaN was not."""
    scores = torch.ones(2, 3, device=device)
    mask = torch.tensor([[True, False, False], [True, True, True]], device=device)
    tool, out = story(lambda: scores.masked_fill(mask, -math.inf).softmax(-1).sum(), capsys)
    assert out[0].startswith("OpOverflowCheck: aten::_softmax made ") and "NaN" in out[0].replace(
        "nan", "NaN"
    )
    assert "from infinities in argument self" in out[0]
    assert tool.source()["op"] == "aten::_softmax"


def test_infinities_on_purpose_are_no_story(device, capsys):
    scores = torch.ones(2, 3, device=device)
    mask = torch.tensor([[True, False, False]], device=device)

    def run():
        for _ in range(60):  # more than are kept
            scores.masked_fill(mask, -math.inf).softmax(-1)

    tool, out = story(run, capsys)
    assert tool.source() is None and len(out) == 1, out


def test_the_source_is_kept_however_late_it_comes(device, monkeypatch):
    monkeypatch.setenv("OP_OVERFLOW_CHECK_LIMIT", "5")
    x = torch.ones(3, device=device)
    tool = quiet(op_tools.OpOverflowCheck())
    with tool:
        for _ in range(40):
            x.masked_fill(x > 0, -math.inf)
        (x * 0).log().mul(0)
    assert tool.first()["op"] == "aten::log" and tool.first_nan()["op"].startswith("aten::mul")


@pytest.mark.parametrize("options", [{"foreach": True}, {"fused": True}, {"foreach": False}])
def test_optimizers_name_their_parameters(device, options, capsys):
    model = Net().to(device)
    optimizer = torch.optim.Adam(model.parameters(), **options)
    x = torch.ones(3, 4, device=device)
    model(x).sum().backward()
    with torch.no_grad():
        model.last.weight.grad[0, 0] = math.nan

    def run():
        model(x)
        optimizer.step()

    tool, out = story(run, capsys)
    assert "last.weight.grad held NaN before aten::" in out[0], out
    optimizing = [event for event in tool.events() if event["phase"] == "optimizer"]
    names = {t["name"] for event in optimizing for t in event["tensors"]}
    assert "last.weight" in names and all(n == "" or n.startswith("last.weight") for n in names)


def test_the_element_that_overflowed_is_shown(on_cpu, capsys):
    x = torch.ones(3, 4)
    x[1, 2] = 100
    _, out = story(lambda: x.exp(), capsys)
    assert "1 +inf of 12, the first at [1, 2] (output 0)" in out[0], out


def test_the_comparison_shows_the_element_that_overflowed(device, capsys):
    x = torch.full((3, 4), 10.0)
    x[0, 1], x[2, 3] = 9.99, 20.0
    x = x.half().to(device)
    tool = op_tools.OpAutoCompare()
    with tool:
        x.exp()
    (found,) = [f for f in tool.findings() if f["op"] == "aten::exp"]
    assert found["verdict"] == "overflow"
    assert list(found["results"][0]["worst"]) == [2, 3] and math.isinf(found["results"][0]["got"])
    assert "[2, 3] is inf" in capsys.readouterr().out


# ---- variables ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name, near",
    [
        ("OP_AUTOCOMPARE_LISTS", "OP_AUTOCOMPARE_LIST"),
        ("OP_AUTO_COMPARE_RAISE", "OP_AUTOCOMPARE_RAISE"),
        ("OP_CAPTURE_MAX_GB", "OP_CAPTURE_MAX_MB"),
        ("OP_TOOL_DEVICE", "OP_TOOLS_DEVICE"),
        ("AUTOCOMPARE_ERROR_TOLERANCE_FP16", "AUTOCOMPARE_ERROR_TOLERANCE"),
    ],
)
def test_misspelt_variables(on_cpu, name, near, monkeypatch):
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(variables, "_warned", set())
    tool = quiet(op_tools.OpObserve())
    with (
        pytest.warns(UserWarning, match=rf"no tool reads the variable {name}; did you mean {near}"),
        tool,
    ):
        torch.ones(1).sin()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with tool:  # said once
            torch.ones(1).sin()


def test_variables_of_others_are_theirs(on_cpu, monkeypatch):
    monkeypatch.setattr(variables, "_warned", set())
    for name in ("OP_SERVICE_ACCOUNT_TOKEN", "OP_ACCOUNT", "OPS", "OP_DEVICE", "LINEAR_OP_DTYPE_CAST_DICT",
                 "LINEAR_AUTOCOMPARE_ERROR_TOLERANCE_FLOAT16"):  # fmt: skip
        monkeypatch.setenv(
            name, "1e-3,1e-3" if "TOLERANCE" in name else "torch.float16->torch.float32"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with quiet(op_tools.OpObserve()):
            torch.ones(1).sin()


def test_every_variable_is_known():
    """Those the sources read are those that are known, and those the manual lists."""
    root = Path(op_tools.__file__).parent
    sources = "\n".join(
        path.read_text() for path in root.rglob("*.py") if path.name != "variables.py"
    )
    read = set(re.findall(r'["\'](OP_[A-Z_]+[A-Z])["\']', sources))
    assert read <= variables.KNOWN | {"OP_AUTOCOMPARE"}, read - variables.KNOWN
    docs = Path(__file__).parents[2] / "docs"
    manual = "".join((docs / name).read_text() for name in ("tools.md", "tools-reference.md"))
    named = {name for name in re.findall(r"`(OP_[A-Z_]+[A-Z])`", manual)}
    assert named <= variables.KNOWN, named - variables.KNOWN
    common_names = {
        f"OP_{tool.family}_{each}"
        for tool in registry.TOOLS
        for each in ("LIST", "DISABLE_LIST", "STEPS")
    }
    assert common_names <= variables.KNOWN
    for name in variables.KNOWN:
        # OP_NEW_*: of a tool that another test makes.
        common = name in common_names or name.startswith("OP_NEW_")
        assert common or name in manual or "TOLERANCE" in name, (
            f"{name} is not in docs/tools-reference.md"
        )


# ---- files ----------------------------------------------------------------------------------------------
def test_names_of_results_do_not_collide(tmp_path, monkeypatch):
    """Two machines may share a folder and have processes of one number, in one second."""
    made = []
    for _ in range(2):
        monkeypatch.setattr(files, "_serial", itertools.count(1))
        monkeypatch.setattr(files.time, "strftime", lambda _: "2026-01-01-00-00-00")
        path = files.result_path(str(tmp_path), "op_autocompare_info")
        files.write_csv(path, ["a"], [{"a": len(made)}])
        made.append(path)
    assert [Path(path).read_text().split() for path in made] == [["a", "0"], ["a", "1"]]
