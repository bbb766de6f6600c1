# SPDX-License-Identifier: Apache-2.0
"""Verdicts on calls that are over: their results against float64 on the cpu, same inputs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

from op_tools import captures
from op_tools.captures import CaptureError, Record
from op_tools.core import _C, first_line, quiet, untrusted_worker, verdict
from op_tools.core.allowed_functions import check_words, operator_number


def skip(reason: str) -> dict:
    return {"verdict": "skip", "reason": reason, "worst": 0, "results": []}


def judge(record: Record) -> dict:
    """verdict, reason and, per result, E with the worst element; `skip` says why it has none."""
    why = _obstacle(record)
    if why:
        return skip(why)
    try:
        with quiet():
            args, outputs = record.load_arguments(), record.load_outputs()
            after = captures.load(record.after)
    except CaptureError as error:
        return skip(str(error))
    return judge_values(record.op, args, outputs, after, record.on_cpu)


def judge_values(
    op: str, args: list, outputs: list, after: dict[int, object], on_cpu: bool
) -> dict:
    """The same of values at hand, all in host memory: arguments as the schema orders them, what
    the operator returned, and what it wrote by the argument's place. `on_cpu`: was it run there?"""
    try:
        check_words(captures.resolve(op), args, {})
        return _C.judge_call(operator_number(op), args, outputs, after, on_cpu)
    except (ValueError, TypeError, RuntimeError) as error:
        return skip(first_line(error))


@contextlib.contextmanager
def work(settings: dict) -> Iterator[Callable]:
    """In the process that judges: core/untrusted_worker.py."""
    opened: dict[str, captures.Capture] = {}

    def answer(request: dict, begin: Callable) -> dict:
        path = request["capture"]
        if path not in opened:
            opened.clear()
            opened[path] = captures.Capture(path)
        return judge(opened[path][request["place"]])

    yield answer


def judged_by(worker: untrusted_worker.Here | untrusted_worker.Apart) -> Callable[[Record], dict]:
    """judge(), in another process. A call that it does not live to judge has the verdict `error`,
    and `died` in it."""

    def ask(record: Record) -> dict:
        try:
            return worker.ask({"capture": record.capture.path, "place": record.place})
        except untrusted_worker.Died as died:
            return {**skip(str(died)), "verdict": "error", "died": True}

    return ask


def worst_e(found: dict) -> float | None:
    """The largest E of the results that were judged."""
    judged = (r["e"] for r in found["results"] if r["verdict"] != "skip")
    return functools.reduce(verdict.worse_e, judged, None)


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
    return "" if record.has_contents else "the capture holds no contents"
