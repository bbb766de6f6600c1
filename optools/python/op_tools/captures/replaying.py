# SPDX-License-Identifier: Apache-2.0
"""A captured call again, and the verdict on it: `op-tools replay`.

The verdict is E (core/verdict.h), of the results here and of those that were captured, each against
float64 from the same inputs. Of a Python API's call every kernel it launches here is judged, in
forward and backward. Whether both results are close by atol and rtol is said beside it, and
decides where there is no E.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from op_tools.captures import judging
from op_tools.core import allowed_functions, kind_and_line, quiet, verdict
from op_tools.core.containers import copy_tensor, same_for_same, transform_contrainer
from op_tools.ditorch_compat.ditorch_folders import Case
from op_tools.ditorch_compat.op_runner import OpRunner
from op_tools.tools.autocompare import OpAutoCompare

E, ALLCLOSE = "e", "allclose"
JUDGES = (E, ALLCLOSE)
FAILED, NOT_COMPARED = "failed", "not compared"
OUTCOMES = ("pass", "warn", "overflow", "error", FAILED, NOT_COMPARED)


@dataclass
class Replay:
    """What came of a call."""

    outcome: str  # one of OUTCOMES
    e: float | None = None  # of the results here
    captured_e: float | None = None
    allclose: bool | None = None  # here and captured, by atol and rtol
    largest: float = 0.0  # difference between them
    notes: list[str] = field(default_factory=list)

    @property
    def is_bad(self) -> bool:
        return self.outcome in ("error", FAILED)


@dataclass
class Settings:
    device: str
    judge: str = E
    seed: int = 0
    allow: tuple[str, ...] = ()


def replay(where: str, case: Case, settings: Settings) -> Replay:
    """Whatever the case raises becomes a part of it: one bad case does not stop a walk."""
    try:
        made = _replay(where, case, settings)
    except Exception as error:
        made = Replay(FAILED, notes=[kind_and_line(error)])
    if case.problems:  # a part of it could not be read
        made.outcome, made.notes = FAILED, [*case.problems, *made.notes]
    return made


def _replay(where: str, case: Case, settings: Settings) -> Replay:
    runner = OpRunner(where, None, settings.device, settings.allow, settings.seed, case)
    by_e = settings.judge == E
    op = allowed_functions.dispatcher_name(case.name)
    is_kernel = "::" in op
    with _kernels_judged(settings.device, by_e and not is_kernel) as kernels:
        runner.run_forward()
        found = [runner.check_forward()]
        if runner.has_backward:
            runner.run_backward()
            found.append(runner.check_backward())
    made = Replay(NOT_COMPARED)
    _add_tolerances(made, [info for info in found if info is not None])
    here = captured = judging.skip("")
    if by_e and is_kernel:
        here, captured = _judge_kernel(op, runner)
    elif by_e:
        here = _worst_kernel(kernels)
    _decide(made, here, captured)
    return made


# ---- by atol and rtol --------------------------------------------------------------
def _add_tolerances(made: Replay, found: list[dict]) -> None:
    """With the outcome they would give; what is within rounding of float64's result passes."""
    if not found:
        return
    made.allclose = all(row["allclose"] for info in found for row in info["result_list"])
    made.allclose &= all(info["result_list"] for info in found)
    made.largest = max(info["max_abs_diff"] for info in found)
    if all(info["allclose"] for info in found):
        made.outcome = "pass"
        return
    made.outcome = "error"
    notes = [info["error_info"] for info in found if info["error_info"]]
    made.notes = notes or [f"{made.largest:.3g} from what was captured"]


# ---- by E --------------------------------------------------------------------------
def _judge_kernel(op: str, runner: OpRunner) -> tuple[dict, dict]:
    """(the verdict on the results here, on those captured)."""
    case = runner.case
    with quiet():
        arguments = _on_host(_in_order(runner))
        result = runner.result
        returned = [] if result is None else [result]
        if len(runner.fun._schema.returns) > 1:
            returned = list(result)
        written = {place: runner.used[place] for place in case.after if place < len(runner.used)}
        returned, written = _on_host(returned), _on_host(written)
    on_cpu = runner.device.type == "cpu"
    here = judging.judge_values(op, arguments, returned, written, on_cpu)
    if case.output is None:
        return here, judging.skip("its results were not captured")
    captured = judging.judge_values(op, arguments, list(case.output), case.after, case.on_cpu)
    return here, captured


def _in_order(runner: OpRunner) -> list:
    """The arguments as the schema has them, as they were before the call."""
    case = runner.case
    given = list(case.args)
    for argument in runner.fun._schema.arguments[len(given) :]:
        given.append(case.kwargs.get(argument.name, argument.default_value))
    return given


def _on_host(values: object) -> object:
    """Detached copies; a device among them is the cpu too."""

    def move(leaf: object) -> object:
        if isinstance(leaf, torch.Tensor):
            return copy_tensor(leaf.detach(), "cpu")
        return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

    return transform_contrainer(values, same_for_same(move))


@contextlib.contextmanager
def _kernels_judged(device: str, wanted: bool) -> Iterator[list[dict]]:
    """Gets a row per result of each kernel launched inside."""
    rows: list[dict] = []
    if not wanted:
        yield rows
        return
    wrapper = OpAutoCompare()
    wrapper.every = 1
    tool = wrapper.make_core()
    tool.label = "op-tools replay"
    tool.select(devices=[torch.device(device).type])
    tool.start()
    try:
        yield rows
    finally:
        tool.stop()
        rows += tool.rows()


def _worst_kernel(rows: list[dict]) -> dict:
    """Of all kernels of a call, as a verdict on one."""
    judged = [row for row in rows if row["verdict"] != "skip"]
    if not judged:
        return judging.skip("no kernel of it could be judged")
    worst = max(judged, key=lambda row: (verdict.ORDER.index(row["verdict"]), row["e"]))
    reason = f"{worst['op']} {worst['result']}: {worst['reason']}"
    return {**judging.skip(reason), "verdict": worst["verdict"], "results": judged}


def _decide(made: Replay, here: dict, captured: dict) -> None:
    """E decides where there is one; of a captured result without one, atol and rtol do."""
    made.e, made.captured_e = judging.worst_e(here), judging.worst_e(captured)
    worst = verdict.worse(here["verdict"], captured["verdict"])
    differs = captured["verdict"] == "skip" and made.outcome == "error"
    if worst == "skip" or (differs and worst != "error"):
        return
    made.outcome = worst
    made.notes = [
        f"{who} {found['verdict']}: {found['reason']} (E {judging.worst_e(found) or 0:.4g})"
        for who, found in (("here", here), ("what was captured:", captured))
        if found["verdict"] not in ("skip", "pass")
    ]
