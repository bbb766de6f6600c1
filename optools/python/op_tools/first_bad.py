# SPDX-License-Identifier: Apache-2.0
"""Which operator of a run is the first to be wrong; `op-tools first-bad`.

The script runs once on the device and once on the reference (each operator on the cpu), both
captured. Calls are matched in the order they began. Where results have other bits than the
reference's, they are judged against float64 from the device's own inputs, so that an error that
came in with the inputs is not blamed on the operator. Where that finds nothing and the runs still
do not come to the same, halves of the operators are sent to the cpu until one is left.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from op_tools.captures import Capture, Record, leaves
from op_tools.cli.diff_command import difference, match, worst
from op_tools.report import judging

# Of calls that cannot be judged: relative difference of results from the same inputs.
UNJUDGED = 1e-3
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)\b")


# ---- runs ----------------------------------------------------------------------------
@dataclass
class Outcome:
    """What a run came to: its exit code and the numbers it printed."""

    code: int
    numbers: list[float]
    folder: str | None  # of the capture
    devices: list[str] | None  # watched; None where the tools were not started
    errors: str

    def agrees(self, other: Outcome, rtol: float) -> bool:
        if self.code != other.code or len(self.numbers) != len(other.numbers):
            return False
        return all(
            a == b or math.isclose(a, b, rel_tol=rtol) or (a != a and b != b)
            for a, b in zip(self.numbers, other.numbers)
        )


class RunError(RuntimeError):
    """A run ended before it could tell anything."""


def run(script: str, arguments: list[str], modes: str, folder: str, **variables: str) -> Outcome:
    """The script in a process of its own, with the tools named: from the first call of a module
    on, or from the beginning where it calls none."""
    outcome = _run(script, arguments, modes, "modules", folder, variables)
    if outcome.devices is None:
        outcome = _run(script, arguments, modes, "now", folder, variables)
    return outcome


def _run(
    script: str, arguments: list[str], modes: str, when: str, folder: str, variables: dict
) -> Outcome:
    with tempfile.TemporaryDirectory() as scratch:
        told = os.path.join(scratch, "told.json")
        command = [sys.executable, "-m", "op_tools.first_bad_run", modes, when, told]
        environment = {**os.environ, "OP_CAPTURE_DIR": folder, "OP_CAPTURE_FORMAT": "native"}
        environment.pop("OP_TOOLS_VERBOSE", None)
        environment.update(variables)
        done = subprocess.run(
            [*command, script, *arguments], capture_output=True, text=True, env=environment
        )
        if done.returncode != 0 or not os.path.exists(told):
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise RunError(f"running {script} failed with code {done.returncode}: {last}")
        with open(told, encoding="utf-8") as file:
            held = json.load(file)
    numbers = [float(word) for word in _NUMBER.findall(done.stdout)]
    return Outcome(held["code"], numbers, held["folder"], held["devices"], done.stderr)


# ---- streams -------------------------------------------------------------------------
@dataclass
class Found:
    record: Record
    why: str
    e: float | None
    result: dict | None  # the worst of its results
    inputs: str  # how they compare with the reference's


@dataclass
class Search:
    found: Found | None
    calls: int
    matched: int
    judged: int


def search(mine: Capture, reference: Capture | None) -> Search:
    """The first call, in the order they began, whose results are wrong for its inputs."""
    records = list(mine)
    others: dict[int, Record] = {}
    if reference is not None:
        pairs, _, _ = match(records, list(reference))
        others = {one.number: other for one, other in pairs}
    judged = 0
    for record in records:
        other = others.get(record.number)
        if other is not None and _same_bits(_made(record), _made(other)):
            continue
        verdict = judging.judge(record)
        judged += verdict["verdict"] != "skip"
        found = _wrong(record, other, verdict)
        if found is not None:
            return Search(found, len(records), len(others), judged)
    return Search(None, len(records), len(others), judged)


def judge_one(record: Record, verdict: dict | None = None) -> Found:
    """A call that was found another way, or by its verdict."""
    verdict = verdict or judging.judge(record)
    result = verdict["results"][verdict["worst"]] if verdict["results"] else None
    e = result["e"] if result else None
    return Found(record, verdict["reason"] or verdict["verdict"], e, result, "")


def _made(record: Record) -> list:
    return [record.outputs, record.after]


def _same_bits(a: object, b: object) -> bool:
    one = [(place, ref.hash, ref.dtype, ref.shape) for place, ref in leaves(a, "")]
    return one == [(place, ref.hash, ref.dtype, ref.shape) for place, ref in leaves(b, "")]


def _wrong(record: Record, other: Record | None, verdict: dict) -> Found | None:
    if verdict["verdict"] == "error":
        found = judge_one(record, verdict)
        found.inputs = _compared(record, other)
        return found
    if verdict["verdict"] != "skip" or other is None or record.rng is not None:
        return None
    if not _same_bits(record.args, other.args):
        return None
    gaps = difference(_made(record), _made(other), "results")
    if worst(gaps) <= UNJUDGED:
        return None
    why = f"{gaps[0][0]}: {gaps[0][2]} (not judged: {verdict['reason']})"
    return Found(record, why, None, None, "the same bits as in the reference")


def _compared(record: Record, other: Record | None) -> str:
    if other is None:
        return "no such call in the reference"
    if _same_bits(record.args, other.args):
        return "the same bits as in the reference"
    gaps = difference(record.args, other.args, "args")
    return f"within {worst(gaps):.3g} of the reference's" if gaps else "equal to the reference's"


# ---- bisection -----------------------------------------------------------------------
def bisect(
    operators: Iterable[str], is_good: Callable[[list[str]], bool]
) -> tuple[str | None, int]:
    """(the operator that makes a run good when it alone is on the cpu, how many runs it took);
    None when it takes more than one."""
    suspects, runs = list(operators), 0
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        runs += 1
        suspects = half if is_good(half) else suspects[len(half) :]
    runs += 1
    if suspects and is_good(suspects):
        return suspects[0], runs
    return None, runs
