# SPDX-License-Identifier: Apache-2.0
"""What the commands share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from op_tools import captures
from op_tools.captures import Capture, Opaque, Record, TensorRef


def add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", help="operators whose name (a regular expression) matches")
    parser.add_argument("--phase", choices=captures.PHASES)
    parser.add_argument("--step", type=int)
    parser.add_argument("--limit", type=int, help="at most this many calls")


def chosen(capture: Capture, flags: argparse.Namespace) -> Iterator[Record]:
    for count, record in enumerate(capture.select(flags.op, flags.phase, flags.step)):
        if flags.limit is not None and count >= flags.limit:
            return
        yield record


def tell_problems(capture: Capture) -> int:
    """Prints what could not be read; an exit code."""
    for problem in capture.problems:
        print(problem, file=sys.stderr)
    return 1 if capture.problems else 0


def brief(value: object) -> str:
    """A value in a few characters."""
    if isinstance(value, TensorRef):
        return value.describe()
    if isinstance(value, (list, tuple)):
        shown = [brief(item) for item in value[:4]] + ["..."] * (len(value) > 4)
        return "[" + ",".join(shown) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{brief(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Opaque):
        return f"<{value.kind}>"
    return repr(value)


def signature(record: Record) -> str:
    given = [brief(value) for value in record.args]
    given += [f"{key}={brief(value)}" for key, value in record.kwargs.items()]
    made = "raised" if record.raised else ", ".join(brief(value) for value in record.outputs)
    return f"({', '.join(given)}) -> {made}"
