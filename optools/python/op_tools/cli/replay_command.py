# SPDX-License-Identifier: Apache-2.0
"""op-tools replay: captured calls again, on any device, with a verdict on each.

A call is an error when its result here, or the captured one, is further from float64's answer to
the same inputs than rounding allows (E above 3, or more than 0.1 % of the elements above 1); with
--judge allclose, and where there is no E, when the two are not close by atol and rtol. Calls are
made in a process of their own: one that crashes it has failed, and the others are made. The exit
code is 1 when a call is an error, failed or could not be read.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict

from op_tools import captures
from op_tools.captures import CaptureError, replaying
from op_tools.captures.replaying import FAILED, OUTCOMES, Replay, Settings
from op_tools.cli.common import count, no_match
from op_tools.cli.run_op_from_data import add_flags, walking
from op_tools.core import untrusted_worker, usable
from op_tools.core.patterns import OperatorPattern
from op_tools.core.printing import many
from op_tools.core.progress import counted
from op_tools.ditorch_compat import ditorch_folders
from op_tools.ditorch_compat.op_runner import default_device

UNREADABLE = "(unreadable)"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="captures and ditorch's folders at or below it")
    add_flags(parser)
    parser.add_argument(
        "--judge",
        choices=replaying.JUDGES,
        default=replaying.E,
        help="the criterion: e, the error in units of the allowed rounding error (the default), or "
        "allclose, by ditorch's atol and rtol (AUTOCOMPARE_ERROR_TOLERANCE...)",
    )
    parser.add_argument("--op", help="operators whose name (a regular expression) matches")
    parser.add_argument("--limit", type=count, help="at most this many calls")


class Row:
    """One operator's line of the table."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.not_close = 0
        self.e: float | None = None
        self.captured_e: float | None = None
        self.largest = 0.0

    def add(self, made: Replay) -> None:
        self.outcomes[made.outcome] += 1
        self.not_close += made.allclose is False
        self.e = _larger(self.e, made.e)
        self.captured_e = _larger(self.captured_e, made.captured_e)
        self.largest = _larger(self.largest, made.largest)


def _larger(a: float | None, b: float | None) -> float | None:
    """NaN is larger than anything."""
    known = [value for value in (a, b) if value is not None]
    return max(known, key=lambda value: (value != value, value), default=None)


def run(flags: argparse.Namespace) -> int:
    device = flags.device or default_device()
    try:
        usable(device)
    except RuntimeError as error:
        raise ValueError(f"--device {device}: {error}") from None
    OperatorPattern(flags.op)  # said before anything is started
    rows: dict[str, Row] = {}
    bad = []
    with untrusted_worker.worker("replay", {**vars(flags), "device": device}, flags) as worker:
        replies = itertools.islice(untrusted_worker.walk(worker), flags.limit)
        for reply in counted(replies, "replaying calls"):
            name, made = _came(reply)
            rows.setdefault(name, Row()).add(made)
            if made.is_bad:
                where = os.path.relpath(reply["where"], flags.path)
                bad.append(f"{where}  {name}: {'; '.join(made.notes)}")
    if not rows:
        raise CaptureError(_why_nothing(flags))
    _table(rows)
    for line in bad:
        print(line)
    total = sum(row.outcomes.total() for row in rows.values())
    calls = many(total, "call")
    print(f"{calls} on {device}: {total - len(bad)} agree, {len(bad)} differ or failed")
    return 1 if bad else 0


def _why_nothing(flags: argparse.Namespace) -> str:
    if flags.op and (captures.find(flags.path) or ditorch_folders.find(flags.path)):
        return no_match(flags.path, flags.op)
    return f"nothing to replay at or below {flags.path}"


@contextlib.contextmanager
def work(given: dict) -> Iterator[Callable]:
    """In the process that makes the calls: core/untrusted_worker.py."""
    flags = argparse.Namespace(**given)
    usable(flags.device)
    settings = Settings(flags.device, flags.judge, flags.seed, tuple(flags.allow))
    yield walking(
        flags.path,
        flags.device,
        lambda where, case: {"made": asdict(replaying.replay(where, case, settings))},
        OperatorPattern(flags.op).matches,
    )


def _came(reply: dict) -> tuple[str, Replay]:
    """(operator, what came of its call)."""
    if "made" in reply:
        return reply["name"], Replay(**reply["made"])
    if "died" in reply:
        return reply["name"] or UNREADABLE, Replay(FAILED, notes=[reply["died"]])
    return UNREADABLE, Replay(FAILED, notes=[reply["why"]])


def _table(rows: dict[str, Row]) -> None:
    from prettytable import PrettyTable

    from op_tools.core.language import columns

    def said(value: float | None) -> str:
        return "-" if value is None else f"{value:.3g}"

    last = ["E", "captured E", "not allclose", "largest difference"]
    table = PrettyTable(["operator", *OUTCOMES, *last])
    table.align["operator"] = "l"
    if (width := columns()) is not None:
        table.max_table_width = width
    order = sorted(rows.items(), key=lambda item: (-item[1].outcomes["error"], item[0]))
    for name, row in order:
        counts = [row.outcomes[outcome] for outcome in OUTCOMES]
        numbers = [said(row.e), said(row.captured_e), row.not_close, said(row.largest)]
        table.add_row([name, *counts, *numbers])
    print(table)
