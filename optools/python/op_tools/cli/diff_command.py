# SPDX-License-Identifier: Apache-2.0
"""op-tools diff: two captures of the same program, call by call.

Calls are matched in the order they began, by operator, phase, step and shapes. Compared is what
they were given and what they returned, wrote or raised, on both sides; devices are left out. Calls
that only one of the two made are listed. The first call whose inputs agree and whose results do
not is the one to look at.
"""

from __future__ import annotations

import argparse

from op_tools import captures
from op_tools.captures import Record
from op_tools.captures.differences import Difference, between, inputs_of, results_of, worst
from op_tools.captures.matching import match
from op_tools.cli.common import add_filters, chosen, tell_problems
from op_tools.core.printing import many

ALONE_SHOWN = 20


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--rtol", type=float, default=0.0, help="relative difference to overlook")
    parser.add_argument(
        "--all", action="store_true", help="print calls that agree, and every call of one side"
    )
    add_filters(parser)


def run(flags: argparse.Namespace) -> int:
    a, b = captures.open(flags.a), captures.open(flags.b)
    found = match(list(chosen(a, flags)), list(chosen(b, flags)))
    first = None
    differ = others = 0
    for one, other in found.pairs:
        given = between(inputs_of(one), inputs_of(other))
        made = between(results_of(one), results_of(other))
        bad, is_other = worst(made) > flags.rtol, worst(given) > flags.rtol
        differ += bad
        others += is_other and not bad
        if bad and first is None and not is_other:
            first = (one, other, made)
        if bad or is_other or flags.all:
            _tell(one, other, given, made)
    for side, alone in ((a, found.only_a), (b, found.only_b)):
        _tell_alone(side.path, alone, flags.all)
    more = f", {others} more had other inputs" if others else ""
    print(
        f"{many(len(found.pairs), 'call')} compared, {differ} differ{more}; "
        f"{len(found.only_a)} only in {a.path}, {len(found.only_b)} only in {b.path}"
    )
    if first is not None:
        _tell_first(*first)
    unread = tell_problems(a) | tell_problems(b)
    return 1 if differ or others or found.only_a or found.only_b or unread else 0


def _tell(one: Record, other: Record, given: list[Difference], made: list[Difference]) -> None:
    state = "differ" if made else "same"
    inputs = "inputs differ" if given else "same inputs"
    print(f"{one.number:>8} {other.number:>8} {one.phase:<9} {one.op:<36} {state}, {inputs}")
    for difference in (*given, *made):
        print(f"{'':>18}{difference.place}: {difference.text}")


def _tell_alone(path: str, alone: list[Record], everything: bool) -> None:
    if not alone:
        return
    shown = alone if everything else alone[:ALONE_SHOWN]
    print(f"only in {path}:")
    for record in shown:
        print(f"{record.number:>8} {record.phase:<9} {record.op:<36} {record.signature()}")
    if len(shown) < len(alone):
        print(f"{'':>8} and {len(alone) - len(shown)} more (--all lists them)")


def _tell_first(one: Record, other: Record, made: list[Difference]) -> None:
    print(
        f"first call with equal inputs and other results: {one.op}  {one.number} / {other.number}"
    )
    for line in filter(None, (one.module, one.site, f"{made[0].place}: {made[0].text}")):
        print(f"  {line}")
