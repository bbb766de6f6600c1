# SPDX-License-Identifier: Apache-2.0
"""op-tools replay: captured calls again, on any device, compared with what was captured."""

from __future__ import annotations

import argparse
import os

from op_tools.captures import CaptureError
from op_tools.core import usable
from op_tools.op_runner import OpRunner, default_device
from op_tools.patterns import OperatorPattern
from op_tools.run_op_from_data import cases


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", help="captures and ditorch's folders at or below it")
    parser.add_argument("--device", default=None, help="default: the accelerator, else the cpu")
    parser.add_argument("--op", help="operators whose name (a regular expression) matches")
    parser.add_argument("--limit", type=int, help="at most this many calls")
    parser.add_argument("--seed", type=int, default=0, help="of random operators (0)")
    parser.add_argument("--allow", action="append", default=[], metavar="PACKAGE")


class Row:
    """One operator's line of the table."""

    def __init__(self) -> None:
        self.same = self.near = self.differ = self.not_compared = self.failed = 0
        self.worst = 0.0

    def add(self, outcome: str, largest: float) -> None:
        setattr(self, outcome, getattr(self, outcome) + 1)
        self.worst = max(self.worst, largest)


def run(flags: argparse.Namespace) -> int:
    device = flags.device or default_device()
    try:
        usable(device)
    except RuntimeError as error:
        raise ValueError(f"--device {device}: {error}") from None
    rows: dict[str, Row] = {}
    bad = []
    for where, case, why in _chosen(flags, device):
        name = case.name if case else "(unreadable)"
        outcome, largest, note = ("failed", 0.0, why) if case is None else _run(where, case, flags)
        rows.setdefault(name, Row()).add(outcome, largest)
        if outcome in ("differ", "failed"):
            bad.append(f"{os.path.relpath(where, flags.path)}  {name}: {note}")
    if not rows:
        raise CaptureError(f"nothing to replay at or below {flags.path}")
    _table(rows)
    for line in bad:
        print(line)
    total = sum(r.same + r.near + r.differ + r.not_compared + r.failed for r in rows.values())
    print(f"{total} calls on {device}: {total - len(bad)} agree, {len(bad)} differ or failed")
    return 1 if bad else 0


def _chosen(flags: argparse.Namespace, device: str):
    pattern = OperatorPattern(flags.op)
    count = 0
    for where, case, why in cases(flags.path, device):
        name = case.name if case else ""
        if not pattern.matches(name):
            continue
        count += 1
        if flags.limit is not None and count > flags.limit:
            return
        yield where, case, why


def _run(where: str, case, flags: argparse.Namespace) -> tuple[str, float, str]:
    """(outcome, largest difference, note); one bad case does not stop the walk."""
    try:
        runner = OpRunner(where, None, flags.device, flags.allow, flags.seed, case)
        runner.run_forward()
        found = [runner.check_forward()]
        if runner.has_backward:
            runner.run_backward()
            found.append(runner.check_backward())
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else ""
        return "failed", 0.0, f"{type(error).__name__}: {first}"
    found = [info for info in found if info is not None]
    if not found:
        return "not_compared", 0.0, ""
    largest = max(info["max_abs_diff"] for info in found)
    if not all(info["allclose"] for info in found):
        notes = [info["error_info"] for info in found if info["error_info"]]
        return "differ", largest, "; ".join(notes) or f"largest difference {largest:.3g}"
    return ("same" if largest == 0 else "near"), largest, ""


def _table(rows: dict[str, Row]) -> None:
    from prettytable import PrettyTable

    columns = "same near differ failed not_compared".split()
    table = PrettyTable(["operator", *(c.replace("_", " ") for c in columns), "largest difference"])
    table.align["operator"] = "l"
    for name, row in sorted(rows.items(), key=lambda item: (-item[1].differ, item[0])):
        table.add_row([name, *(getattr(row, c) for c in columns), f"{row.worst:.3g}"])
    print(table)
