# SPDX-License-Identifier: Apache-2.0
"""Verdicts on captured calls: what was captured against float64 on the cpu, same inputs."""

from __future__ import annotations

from op_tools import captures
from op_tools.captures import CaptureError, Record
from op_tools.core import _C, quiet
from op_tools.replayable import operator_number


def skip(reason: str) -> dict:
    return {"verdict": "skip", "reason": reason, "worst": 0, "results": []}


def judge(record: Record) -> dict:
    """verdict, reason and, per result, E with the worst element; `skip` says why it has none."""
    why = _obstacle(record)
    if why:
        return skip(why)
    on_cpu = all(ref.device == "cpu" for _, ref in record.tensors())
    try:
        with quiet():
            args, outputs = record.load_arguments(), record.load_outputs()
            after = captures.load(record.after)
        return _C.judge_call(operator_number(record.op), args, outputs, after, on_cpu)
    except (CaptureError, ValueError, TypeError, RuntimeError) as error:
        return skip(str(error).splitlines()[0] if str(error) else type(error).__name__)


def _obstacle(record: Record) -> str:
    if record.raised is not None:
        return "it raised an exception"
    if "::" not in record.op:
        return "a Python API: `op-tools replay` compares those"
    try:
        captures.resolve(record.op)
    except CaptureError as error:
        return str(error)
    for place, ref in record.tensors():
        if ref.reason and not (ref.reason in captures.STAND_INS and place.startswith("args")):
            return f"captured without contents: {ref.reason}"
        if ref.hash and not ref.capture.has_contents:
            return "the capture holds no contents"
    return ""
