# SPDX-License-Identifier: Apache-2.0
"""What several of the tools' tests need."""

import contextlib
import threading
import warnings

import op_tools
import torch
from op_tools import captures
from op_tools.cli import main
from optools_devices import KEYS

TOOLS = (
    "OpObserve",
    "OpOverflowCheck",
    "OpTimeMeasure",
    "OpFallback",
    "OpDtypeCast",
    "OpCapture",
    "OpAutoCompare",
)


def ops(tool, phase=None):
    """The operators OpObserve saw, in order."""
    return [r["op"] for r in tool.records() if phase in (None, r["phase"])]


def acted(tool):
    """The operators a stopped tool did its work on: what it only let pass does not count."""
    if isinstance(tool, (op_tools.OpFallback, op_tools.OpDtypeCast)):
        return {op for op, why, _ in tool.counts() if not why}
    if isinstance(tool, op_tools.OpAutoCompare):
        return {row["op"] for row in tool.rows() if row["verdict"] != "skip"}
    if isinstance(tool, op_tools.OpCapture):
        return {record.op for record in captures.open(tool.folder)}
    if isinstance(tool, op_tools.OpTimeMeasure):
        return {sample.op for sample in tool.samples()}
    if isinstance(tool, op_tools.OpOverflowCheck):  # it counts tensors
        return {"any"} if tool._last.checked else set()
    return set(ops(tool))


def output(capsys, *arguments):
    """The exit code and the output of the command op-tools."""
    capsys.readouterr()
    code = main([str(a) for a in arguments])
    return code, capsys.readouterr()


def capture_of_calls(count, **limits):
    """An OpCapture that stopped after so many calls of aten::neg."""
    tool = op_tools.OpCapture()
    for name, value in limits.items():
        setattr(tool, name, value)
    x = torch.ones(1)
    with tool:
        for _ in range(count):
            x.neg()
    return tool


def in_thread(function):
    """The function's result, in a thread that begins with it."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def wrong_gelu(x, *, approximate="none"):
    """Right, but for one element of float32."""
    result = 0.5 * x * (1 + torch.erf(x / 2**0.5))
    if x.dtype == torch.float32:
        result.view(-1)[3] *= 1.01
    return result


def quiet(tool):
    tool.report = lambda: None
    return tool


@contextlib.contextmanager
def kernel(op, function, device):
    """Another kernel for an operator of aten on a device, as long as the block lasts."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it takes another's place is the point
        library.impl(op, function, KEYS[device], allow_override=True)
    try:
        yield
    finally:
        library._destroy()
