# SPDX-License-Identifier: Apache-2.0
"""A tool that fails, or whose disk does, says so: the program that is watched goes on."""

import os
import textwrap
from pathlib import Path

import interpreter
import op_tools
import pytest
import torch
from op_tools import _C
from op_tools.ditorch_compat import features, tool_hooks
from op_tools.module_tools import CompLayerAcc

pytestmark = pytest.mark.usefixtures("on_cpu")


def run(program):
    return interpreter.run(
        ["-c", textwrap.dedent(program)],
        timeout=240,
    )


# ---- report() and stop() -------------------------------------------------------------
@pytest.mark.parametrize("tool", [op_tools.OpTimeMeasure, op_tools.OpAutoCompare])
def test_a_table_that_cannot_be_saved_is_a_line(tool, capsys):
    Path("op_tools_results").write_text("a file where the folder should be")
    with tool():
        torch.ones(3).sin()
    lines = [line for line in capsys.readouterr().out.splitlines() if "could not be saved" in line]
    assert len(lines) == 1 and lines[0].startswith(f"{tool.__name__}: ")


def test_wrong_results_are_raised_also_without_a_disk(monkeypatch):
    Path("op_tools_results").write_text("a file where the folder should be")
    tool = op_tools.OpAutoCompare()
    tool.raise_on_error = True
    error = dict.fromkeys(("pass", "warn", "overflow", "skip"), 0)
    with pytest.raises(op_tools.CompareError, match="1 call with wrong results"), tool:
        torch.ones(3).sin()
        core = tool._core

        class Sums:
            """What the core says, but for one error."""

            def __getattr__(self, name):
                return getattr(core, name)

            def sums(self):
                return [{"op": "aten::sin", **error, "error": 1, "e": 9.0, "ns": 0}]

        tool._core = Sums()


def test_a_malformed_raise_is_said_at_the_start(monkeypatch):
    monkeypatch.setenv("OP_AUTOCOMPARE_RAISE", "yes")
    with pytest.raises(ValueError, match="OP_AUTOCOMPARE_RAISE"):
        op_tools.OpAutoCompare().start()


def test_a_report_that_fails_is_a_warning():
    class Broken(op_tools.OpObserve):
        def report(self):
            raise KeyError("no such thing")

    with pytest.warns(UserWarning, match="Broken could not report: KeyError"), Broken():
        torch.ones(3).sin()


def test_at_the_end_all_tools_stop():
    done = run(
        """
        import torch, op_tools
        class Broken(op_tools.OpObserve):
            def conclude(self):
                raise KeyError("no such thing")
        op_tools.OpFallback().start()
        Broken().start()
        op_tools.OpObserve().start()
        torch.ones(3).sin()
        """
    )
    assert done.returncode == 0, done.stderr
    assert "Broken could not stop: KeyError" in done.stderr
    assert "OpFallback: " in done.stdout and "OpObserve: " in done.stdout


def test_what_is_asked_for_too_early_is_said():
    with pytest.raises(RuntimeError, match=r"OpObserve has found nothing yet: stop\(\) it first"):
        op_tools.OpObserve().records()


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("modules", "(", r"OpObserve.modules: '\(' is no regular expression"),
        ("phases", ("forwards",), "OpObserve.phases: 'forwards' is not one of forward, backward"),
    ],
)
def test_a_start_that_fails_leaves_nothing_behind(setting, value, said):
    tool = op_tools.OpObserve()
    setattr(tool, setting, value)
    with pytest.raises(ValueError, match=said):
        tool.start()
    assert not tool.is_running and _C.idle()


def test_settings_changed_while_it_runs_do_not_keep_it_from_stopping():
    tool = op_tools.OpObserve().start()
    tool.module_paths = True
    tool.stop()
    tool.module_paths = True
    tool.start()
    tool.module_paths = False
    tool.stop()
    from op_tools.core import module_paths

    assert not module_paths._users and not module_paths._handles


# ---- hooks in backward ---------------------------------------------------------------
@pytest.mark.broken_tool
@pytest.mark.parametrize("method", ["before_backward", "backward", "before_call_op"])
def test_a_hook_that_fails_leaves_the_program_alone(monkeypatch, method):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")

    def broken(*args, **kwargs):
        raise KeyError("no such thing")

    monkeypatch.setattr(tool_hooks.OpTimeMeasureHook, method, broken)
    x = torch.ones(3, requires_grad=True)
    with (
        pytest.warns(UserWarning, match="OpTimeMeasure stopped printing single calls"),
        op_tools.OpTimeMeasure(),
    ):
        x.sin().sum().backward()
    assert torch.equal(x.grad, torch.ones(3).cos())


def test_backward_after_the_tool_has_stopped(monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    x = torch.ones(3, requires_grad=True)
    with op_tools.OpTimeMeasure():
        y = x.sin().sum()
    capsys.readouterr()
    y.backward()
    assert torch.equal(x.grad, torch.ones(3).cos())
    assert "backward_elasped" not in capsys.readouterr().out


# ---- module paths --------------------------------------------------------------------
WATCHING_MODULES = [op_tools.OpOverflowCheck, op_tools.OpAutoCompare, op_tools.OpCapture]


@pytest.mark.parametrize("tool", WATCHING_MODULES)
@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_compiling_while_modules_are_watched(tool):
    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    x = torch.ones(2, 3)
    expected = model(x)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    with tool():
        got = compiled(x)
        got.sum().backward()
    assert torch.equal(got, expected) and torch.equal(compiled(x), expected)


def test_modules_that_cannot_be_hashed():
    class Odd(torch.nn.Module):
        __hash__ = None

        def __eq__(self, other):
            return False

        def forward(self, x):
            return x / 0

    tool = op_tools.OpOverflowCheck()
    with tool:
        Odd()(torch.ones(2))
    assert tool.first()["module"] == "Odd"


# ---- apply_feature -------------------------------------------------------------------
def test_a_feature_whose_tool_does_not_start_is_not_counted(monkeypatch):
    monkeypatch.setenv("OP_DTYPE_CAST_DICT", "half to float")
    with pytest.raises(ValueError, match="OP_DTYPE_CAST_DICT"):
        features.run_as("cast_dtype", "torch.sin", torch.sin, (torch.ones(2),), {})
    with pytest.raises(ValueError, match="OP_DTYPE_CAST_DICT"):
        op_tools.apply_feature("torch.sin", "cast_dtype")
    monkeypatch.delenv("OP_DTYPE_CAST_DICT")
    features.run_as("cast_dtype", "torch.sin", torch.sin, (torch.ones(2),), {})
    assert not features._shared


def test_a_place_that_cannot_be_set_is_left_alone():
    with pytest.raises((TypeError, AttributeError)):
        op_tools.apply_feature("builtins.int.bit_length", "dump_op_args")
    assert not features._shared and not features._applied


def test_features_end_at_a_fork():
    sin = torch.sin
    with op_tools.apply_feature("torch.sin", "dump_op_args") as applied:
        assert torch.sin is not sin
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert torch.sin is sin and not features._shared
                applied.undo()  # was done, and is not done again
                again = op_tools.apply_feature("torch.sin", "fallback")
                also = op_tools.apply_feature("torch.cos", "dump_op_args")
                torch.sin(torch.ones(2)), torch.cos(torch.ones(2))
                assert features._shared["dump_op_args"].tool.is_running
                also.undo(), again.undo()
                assert _C.idle() and torch.sin is sin
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert torch.sin is not sin


# ---- module_tools --------------------------------------------------------------------
def test_a_dump_that_cannot_be_written_ends_and_not_the_training(capsys):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    dump = CompLayerAcc(model, is_dump_benchmark=True, data_path="dump")
    dump.insert_hook()
    Path("dump/rank0/expected/forward").write_text("a file where the folder should be")
    for _ in range(2):
        model(torch.ones(2, 3)).sum().backward()
    assert model[0].weight.grad is not None
    text = capsys.readouterr().out
    assert text.count("CompLayerAcc") == 1 and "dump/rank0/expected" in text


def test_a_forward_that_raises_does_not_mix_up_calls():
    class Sometimes(torch.nn.Module):
        def forward(self, x, fails=False):
            if fails:
                raise ValueError("asked for")
            return x + 1

    model = Sometimes()
    CompLayerAcc(model, data_path="dump").insert_hook()
    with pytest.raises(ValueError, match="asked for"):
        model(torch.zeros(1), fails=True)
    model(torch.ones(1))
    dumped = torch.load("dump/rank0/expected/forward/Sometimes..1.pt", weights_only=True)
    assert dumped["input"][0].item() == 1 and dumped["output"].item() == 2
