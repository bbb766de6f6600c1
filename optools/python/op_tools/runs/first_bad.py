# SPDX-License-Identifier: Apache-2.0
"""Which operator of a run is the first to be wrong; `op-tools first-bad`.

The script runs once on the device and once on the reference (each operator on the cpu), both
captured. Calls are matched in the order they began. Where results have other bits than the
reference's, they are judged against float64 from the device's own inputs, so that an error that
came in with the inputs is not blamed on the operator. Where that finds nothing and the runs still
do not come to the same, halves of the operators are sent to the cpu until one is left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.utils._pytree import tree_leaves

from op_tools import captures
from op_tools.captures import STAND_INS, Capture, CaptureError, Record
from op_tools.captures.differences import between, inputs_of, results_of, same_bits, worst
from op_tools.captures.matching import match
from op_tools.core import quiet
from op_tools.core.progress import counted

# Of calls that cannot be judged: relative difference of results from the same inputs.
UNJUDGED = 1e-3


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
    died: list[tuple[Record, str]] = field(default_factory=list)  # not judged: it crashed, and how


def search(mine: Capture, reference: Capture | None, judge: Callable[[Record], dict]) -> Search:
    """The first call, in the order they began, whose results are wrong for its inputs."""
    records = list(mine)
    others: dict[int, Record] = {}
    if reference is not None:
        pairs = match(records, list(reference)).pairs
        others = {one.number: other for one, other in pairs}
    made = Search(None, len(records), len(others), 0)
    for record in counted(records, "judging calls", len(records)):
        other = others.get(record.number)
        if record.raised is not None and (other is None or other.raised is not None):
            continue  # the script's own error: the cpu raises it too
        if other is not None and same_bits(results_of(record), results_of(other)):
            continue
        verdict = judge(record)
        if verdict.get("died"):  # of float64 on the cpu: no word about the device
            made.died.append((record, verdict["reason"]))
            continue
        made.judged += verdict["verdict"] != "skip"
        made.found = _wrong(record, other, verdict)
        if made.found is not None:
            break
    return made


def first_not_finite(mine: Capture) -> tuple[Record, str] | None:
    """The first call that makes a NaN of operands without one; else an infinity. What it made."""
    records = [record for record in mine if record.raised is None]
    for what, has in (("NaN", _has_nan), ("an infinite value", _has_infinity)):
        for record in counted(records, "looking for values that are not finite", len(records)):
            given, made = _values(record)
            if has(made) and not has(given):
                return record, what
    return None


def _values(record: Record) -> tuple[list, list]:
    """Arguments, and what was returned or written; nothing where the capture does not hold it."""
    try:
        with quiet():
            return record.load_arguments(), [record.load_outputs(), captures.load(record.after)]
    except CaptureError:
        return [], []


def _tensors(values: object) -> list[torch.Tensor]:
    found = [v for v in tree_leaves(values) if isinstance(v, torch.Tensor)]
    return [t for t in found if t.is_floating_point() or t.is_complex()]


def _has_nan(values: object) -> bool:
    return any(bool(torch.isnan(t).any()) for t in _tensors(values))


def _has_infinity(values: object) -> bool:
    return any(bool(torch.isinf(t).any()) for t in _tensors(values))


def judge_one(record: Record, verdict: dict) -> Found:
    """A call that was found another way, or by its verdict."""
    result = verdict["results"][verdict["worst"]] if verdict["results"] else None
    e = result["e"] if result else None
    return Found(record, verdict["reason"] or verdict["verdict"], e, result, "")


def _same_inputs(record: Record, other: Record) -> bool:
    return same_bits(inputs_of(record), inputs_of(other), overlook=STAND_INS)


def _wrong(record: Record, other: Record | None, verdict: dict) -> Found | None:
    if verdict["verdict"] == "error":
        found = judge_one(record, verdict)
        found.inputs = _compared(record, other)
        return found
    if verdict["verdict"] != "skip" or other is None or record.rng is not None:
        return None
    if not _same_inputs(record, other):
        return None
    gaps = between(results_of(record), results_of(other))
    if worst(gaps) <= UNJUDGED:
        return None
    why = f"{gaps[0].place}: {gaps[0].text} (not judged: {verdict['reason']})"
    return Found(record, why, None, None, "the same bits as in the reference")


def _compared(record: Record, other: Record | None) -> str:
    if other is None:
        return "no such call in the reference"
    if _same_inputs(record, other):
        return "the same bits as in the reference"
    gaps = between(inputs_of(record), inputs_of(other))
    return f"within {worst(gaps):.3g} of the reference's" if gaps else "equal to the reference's"
