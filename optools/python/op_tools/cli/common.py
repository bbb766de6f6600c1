# SPDX-License-Identifier: Apache-2.0
"""What the commands share."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator

from op_tools import captures
from op_tools.captures import Capture, Record


def count(text: str) -> int:
    """An argument that is a whole number, 0 or more."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: expected 0 or a whole number above it")
    return int(text)


def add_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--op", help="operators whose name (a regular expression) matches")
    parser.add_argument("--phase", choices=captures.PHASES)
    parser.add_argument("--step", type=int)
    parser.add_argument("--limit", type=count, help="at most this many calls")


def chosen(capture: Capture, flags: argparse.Namespace) -> Iterator[Record]:
    return itertools.islice(capture.select(flags.op, flags.phase, flags.step), flags.limit)


def no_match(path: str, op: str) -> str:
    """Why a command with --op has no calls, though there are captures."""
    return (
        f"no call at or below {path} is of an operator that matches --op {op!r}; "
        "`op-tools ls --ops` lists the operators of a capture"
    )


def tell_problems(capture: Capture) -> int:
    """Prints what could not be read; an exit code."""
    for problem in capture.problems:
        print(problem, file=sys.stderr)
    return 1 if capture.problems else 0


def tell_fields(*fields: tuple[str, object]) -> None:
    """`name: value` lines of those that have a value."""
    for name, value in fields:
        if value:
            print(f"  {name}: {str(value).replace(chr(10), chr(10) + '    ')}")
