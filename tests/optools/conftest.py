# SPDX-License-Identifier: Apache-2.0
"""Tools run on plain cpu tensors and on an accelerator; no test leaves a tap behind."""

from types import SimpleNamespace

import op_tools
import pytest
import torch
from fork_commands import python_command
from op_tools import _C, captures
from op_tools.core import options
from op_tools.core.op_tool import OpTool
from op_tools.runs import script_runs
from optools_devices import ACCELERATORS, DEVICES
from optools_helpers import kernel, wrong_gelu

if "npu" in DEVICES:
    import torch_npu  # noqa: F401


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", request.param)
    return request.param


@pytest.fixture(
    params=ACCELERATORS
    or [pytest.param("", marks=pytest.mark.skip(reason="no device but the cpu here"))]
)
def accelerator(request, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", request.param)
    return request.param


@pytest.fixture
def on_cpu(monkeypatch):
    """For tests of what does not depend on the device."""
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    """Results go to a folder of the test; afterwards nothing runs and no tap is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "_shown", {})
    _C.set_step(0)
    yield
    assert _C.idle()
    assert _C.tap_count() == 0


@pytest.fixture(autouse=True)
def sound_tools(request, monkeypatch):
    """No tool that stopped had given up on the way, but where a test breaks one on purpose."""
    failures = []
    stop = OpTool.stop

    def watched(tool):
        core = tool._core
        try:
            stop(tool)
        finally:
            if core is not None and (core.failure or tool.gave_up):
                failures.append((type(tool).__name__, core.failure or "its hooks gave up"))

    monkeypatch.setattr(OpTool, "stop", watched)
    monkeypatch.setattr(OpTool, "end", watched)
    yield
    if request.node.get_closest_marker("broken_tool"):
        assert failures, "marked broken_tool, and no tool failed"
    else:
        assert not failures, failures


@pytest.fixture(scope="session")
def forked_python(tmp_path_factory):
    """A command `python` whose processes are forks of one that has imported torch."""
    with python_command(tmp_path_factory.mktemp("bin")) as path:
        yield path


@pytest.fixture
def forked_runs(forked_python, monkeypatch):
    """Scripts that the tools run again and again are forks."""
    monkeypatch.setattr(script_runs, "sys", SimpleNamespace(executable=forked_python))


@pytest.fixture
def whole():
    """A capture of one call; (its folder, its argument)."""
    tool = op_tools.OpCapture()
    with tool:
        torch.arange(6.0).sin()
    sin = next(record for record in captures.open(tool.folder) if record.op == "aten::sin")
    return tool.folder, sin.args[0]


@pytest.fixture
def bad_gelu():
    """The CPU's gelu is wrong."""
    with kernel("gelu", wrong_gelu, "cpu"):
        yield
