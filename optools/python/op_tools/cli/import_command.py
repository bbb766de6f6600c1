# SPDX-License-Identifier: Apache-2.0
"""op-tools import: ditorch's folders -> a capture. Files that hold code are refused."""

from __future__ import annotations

import argparse
import os
import sys

from op_tools.captures import CaptureError
from op_tools.core import _C
from op_tools.core.capture_format import head, new_folder
from op_tools.core.printing import many
from op_tools.ditorch_compat import ditorch_folders
from op_tools.ditorch_compat.ditorch_folders import Case, CaseError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", help="walked for input.pth files")
    parser.add_argument("--out", help="the capture's folder (default: a new one)")


def run(flags: argparse.Namespace) -> int:
    found = ditorch_folders.find(flags.folders)
    if not found:
        raise CaptureError(f"no input.pth at or below {flags.folders}")
    if flags.out:
        os.makedirs(flags.out)
    folder = flags.out or new_folder()
    writer = _C.CaptureWriter(folder, head(content="full", source="ditorch"))
    numbers: dict[str, int] = {}
    bad = done = 0
    for path in sorted(found, key=_order):
        try:
            case = ditorch_folders.load(path)
        except CaseError as error:
            print(error, file=sys.stderr)
            bad += 1
            continue
        for problem in case.problems:
            print(problem, file=sys.stderr)
        bad += bool(case.problems)
        done += 1
        if case.name not in numbers:
            numbers[case.name] = len(numbers) + 1
            writer.define("op", numbers[case.name], case.name, "")
        writer.add(_record(case, done, numbers[case.name]))
    writer.close()
    if writer.why_closed:
        raise OSError(writer.why_closed)
    print(f"{folder}: {many(done, 'call')}, {many(bad, 'case')} with problems")
    return 1 if bad else 0


def _order(path: str) -> tuple:
    """By the call's number, which is a part of the path."""
    numbers = [int(part) for part in path.split(os.sep) if part.isdigit()]
    return (numbers[-1] if numbers else 0, path)


def _record(case: Case, number: int, op: int) -> dict:
    record = {"number": number, "op": op, "phase": 0, "args": list(case.args)}
    if case.kwargs:
        record["kwargs"] = dict(case.kwargs)
    record["out"] = list(case.output or ())
    if case.grad_inputs is not None:
        record["grad_inputs"] = list(case.grad_inputs)
        record["of_arguments"] = case.of_arguments
    if case.grad_outputs is not None:
        record["grad_outputs"] = list(case.grad_outputs)
    return record
