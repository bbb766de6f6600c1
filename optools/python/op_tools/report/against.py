# SPDX-License-Identifier: Apache-2.0
"""Two runs side by side: which call of one is which of the other, and what differs."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING

from op_tools.captures import Record, leaves
from op_tools.captures.differences import between, inputs_of, results_of
from op_tools.captures.values import TensorRef
from op_tools.core.progress import counted
from op_tools.core.verdict import worse_e

if TYPE_CHECKING:
    from op_tools.report.gathering import Call, Gathering


def _key(call: Call, first: int) -> tuple:
    return call.op, call.phase, call.step - first, call.shapes


def first_difference(mine: Gathering, other: Gathering) -> tuple[dict | None, int]:
    """The first call whose results are not the same in both runs, and how many were compared. Calls
    are matched as in compare(). A call whose contents were not captured on both sides is passed over."""
    if mine.capture is None or other.capture is None:
        return None, 0
    here, there = _first_step(mine), _first_step(other)
    theirs: dict[tuple, deque[Record]] = defaultdict(deque)
    for record in other.capture:
        theirs[_record_key(record, there)].append(record)
    compared = 0
    for record in counted(mine.capture, "comparing results", len(mine.capture)):
        same = theirs.get(_record_key(record, here))
        if not same:
            continue
        twin = same.popleft()
        made, theirs_made = results_of(record), results_of(twin)
        if not (_is_known(made) and _is_known(theirs_made)):
            continue
        compared += 1
        found = between(made, theirs_made)
        if found:
            most = max(found, key=lambda difference: difference.relative)
            given = between(inputs_of(record), inputs_of(twin))
            return {
                "number": record.number,
                "place": most.place,
                "text": most.text,
                "inputs": f"{given[0].place}: {given[0].text}" if given else "",
            }, compared
    return None, compared


def _record_key(record: Record, first: int) -> tuple:
    return record.op, record.phase, record.step - first, shapes_of(record)


def _is_known(places: dict) -> bool:
    tensors = [leaf for leaf in places.values() if isinstance(leaf, TensorRef)]
    return all(ref.hash is not None or not ref.numel for ref in tensors)


def shapes_of(record: Record) -> str:
    """Of the tensors a call was given."""
    given = leaves([record.args, record.kwargs], "")
    return " ".join(ref.describe() for _, ref in given)


def _first_step(found: Gathering) -> int:
    """A run may be captured from any step on."""
    return min((call.step for call in found.calls), default=0)


def _time(call: Call) -> float | None:
    return call.device if call.device is not None else call.took


def compare(mine: Gathering, other: Gathering) -> dict:
    """What the page gets. Calls are matched in the order they began, by operator, phase, step (from
    each run's first) and shapes; `took` and `e` are the other's, for each call of ours."""
    here, there = _first_step(mine), _first_step(other)
    waiting: dict[tuple, deque[Call]] = defaultdict(deque)
    for call in other.calls:
        waiting[_key(call, there)].append(call)
    took, e, matched = [], [], 0
    for call in mine.calls:
        same = waiting.get(_key(call, here))
        found = same.popleft() if same else None
        matched += found is not None
        took.append(None if found is None else _time(found))
        e.append(None if found is None else found.e)
    sums: dict[str, list] = {}
    for call in other.calls:
        row = sums.setdefault(call.op, [0, 0.0, None])
        row[0] += 1
        row[1] += _time(call) or 0.0
        row[2] = worse_e(row[2], call.e)
    return {
        "folder": other.capture.path if other.capture else other.folder,
        "matched": matched,
        "only_here": len(mine.calls) - matched,
        "only_there": len(other.calls) - matched,
        "took": took,
        "e": e,
        "operators": [[op, *row] for op, row in sorted(sums.items())],
        "losses": {
            step.number - there + here: step.loss for step in other.steps if step.loss is not None
        },
    }
