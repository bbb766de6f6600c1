# SPDX-License-Identifier: Apache-2.0
"""The package itself: names users import, and what a new tool gets from the registry."""

import importlib
import os
import subprocess
import sys

import op_tools
import pytest
import torch
from op_tools import _C
from op_tools.cli import self_check_command, selftest
from op_tools.core.op_tool import OpTool
from op_tools.ditorch_compat import features
from op_tools.tools import registry

# Documented (docs/tools-reference.md, optools/README.md) or ditorch's own.
PUBLIC = {
    "op_tools": "OpObserve OpOverflowCheck OpTimeMeasure OpCapture OpAutoCompare OpFallback "
    "OpDtypeCast CompareError SelfCheckError apply_feature self_check __version__",
    "op_tools.base_hook": "BaseHook DisableHookGuard OpCaptureHook OpAutoCompareHook OpFallbackHook "
    "OpDtypeCastHook OpObserveHook OpOverflowCheckHook OpTimeMeasureHook",
    "op_tools.captures": "open find Capture Record TensorRef CaptureError resolve load leaves",
    "op_tools.cli": "main",
    "op_tools.core": "_C",
    "op_tools.module_tools": "CompLayerAcc compare_accuracy",
    "op_tools.op_runner": "OpRunner OpAccyChecker SyncExecuteTimer",
    "op_tools.pretty_print": "dict_data_list_to_table packect_data_to_dict_list",
    "op_tools.process_monitor": "main",
    "op_tools.run_op_from_data": "main",
    "op_tools.save_op_args": "serialize_args_to_dict",
    "op_tools.selftest": "main",
    "op_tools.utils": "is_opname_match get_function_from_string to_device traverse_container",
    "op_tools.verdict": "judge",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_names_users_know_stay_where_they_are(module):
    found = importlib.import_module(module)
    for name in PUBLIC[module].split():
        assert hasattr(found, name), name


def test_programs_run_by_name():
    for module in ("op_tools", "op_tools.run_op_from_data", "op_tools.process_monitor"):
        done = subprocess.run(
            [sys.executable, "-m", module, "--help"], capture_output=True, text=True
        )
        assert done.returncode == 0 and "usage:" in done.stdout, done.stderr


def test_the_registry_has_every_tool_and_all_read_it():
    # OpGradCheck is about autograd functions: it taps no operator, so it is none of these.
    offered = (getattr(op_tools, name) for name in op_tools.__all__ if name.startswith("Op"))
    assert set(registry.TOOLS) == {tool for tool in offered if issubclass(tool, OpTool)}
    named = [tool.__name__ for tool in registry.TOOLS]
    assert list(self_check_command.TOOLS) == named
    assert set(named) <= {name for name, _ in selftest.CHECKS}
    assert set(features.FEATURES.values()) == set(registry.TOOLS)
    with pytest.raises(ValueError, match="OpMagic is no tool: expected one of OpObserve, "):
        registry.named("OpMagic")


class OpNew(OpTool):
    """What a new tool has to say of itself."""

    family = "NEW"

    def make_core(self):
        return _C.Observe(1 << 20)


def test_a_new_tool_needs_no_lines_of_ditorch(device, monkeypatch, capsys):
    monkeypatch.setenv("OP_TOOLS_VERBOSE", "ditorch")
    x = torch.ones(3, device=device)
    with OpNew() as tool:
        y = x.add(1)
        y.numel()
    assert y.tolist() == [2, 2, 2]
    assert sum(count for _, _, count in tool._last.counts()) >= 1
    assert "OpNewHook" not in capsys.readouterr().out


def test_a_new_tool_is_checked_like_the_others(device, monkeypatch):
    assert selftest._runs(OpNew)(device) == "a training step under it"


def test_another_torch_is_a_sentence():
    done = subprocess.run(
        [sys.executable, "-c", "import torch; torch.__version__ = '2.5.1'; import op_tools"],
        capture_output=True, text=True, env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )  # fmt: skip
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: op_tools: built for torch 2.")
    assert "found torch 2.5.1. Install torch 2." in last
