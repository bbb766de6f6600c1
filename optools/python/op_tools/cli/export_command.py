# SPDX-License-Identifier: Apache-2.0
"""op-tools export: a capture -> ditorch's folders, one per call.

A kernel's name becomes the Python name it can be called by: aten::add.Tensor is
torch.ops.aten.add.Tensor. Calls that compute nothing (views, uninitialised memory) are left out.
"""

from __future__ import annotations

import argparse
import os
import re
import sys

from op_tools import captures
from op_tools.captures import CaptureError, Opaque, Record
from op_tools.cli.common import add_filters, chosen, tell_problems
from op_tools.core.allowed_functions import python_name
from op_tools.core.printing import many
from op_tools.ditorch_compat.ditorch_folders import OF_ARGUMENTS
from op_tools.ditorch_compat.save_op_args import write_args

# Why results have no contents, where there is nothing in them that could be right or wrong.
NO_RESULT = ("a view only", "uninitialised")
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)+")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capture")
    parser.add_argument("folder")
    add_filters(parser)


def run(flags: argparse.Namespace) -> int:
    capture = captures.open(flags.capture)
    done = bad = empty = 0
    for record in chosen(capture, flags):
        if _computes_nothing(record):
            empty += 1
            continue
        try:
            _write(record, flags.folder)
            done += 1
        except CaptureError as error:
            print(f"call {record.number} {record.op}: {error}", file=sys.stderr)
            bad += 1
    left = f"; {empty} left out (views, uninitialised memory: nothing to export)" if empty else ""
    print(f"{flags.folder}: {many(done, 'call')}, {bad} could not be exported{left}")
    return 1 if tell_problems(capture) or bad else 0


def _computes_nothing(record: Record) -> bool:
    reasons = [ref.reason for _, ref in captures.leaves(record.outputs, "")]
    return bool(reasons) and all(reason in NO_RESULT for reason in reasons)


def _write(record: Record, folder: str) -> None:
    name = python_name(record.op)
    if not _NAME.fullmatch(name):  # it becomes a folder: nothing else than a name may be in it
        raise CaptureError("its name is neither an operator nor a Python function")
    args, kwargs = record.load()
    for value in (*args, *kwargs.values()):
        if isinstance(value, Opaque):
            raise CaptureError(f"its argument {value!r} cannot be in a file")
    path = os.path.join(folder, name, str(record.number))

    def write(what: str, values: tuple, named: dict | None = None) -> None:
        write_args(
            os.path.join(path, what),
            name,
            os.path.join(str(record.number), what),
            values,
            named or {},
        )

    if record.raised is None:
        outputs = record.load_outputs()
        write("output", (outputs[0] if len(outputs) == 1 else tuple(outputs),))
    for what in ("grad_inputs", "grad_outputs"):
        values = getattr(record, what)
        if values is not None:
            marks = {OF_ARGUMENTS: True} if what == "grad_inputs" and record.of_arguments else {}
            write(what, tuple(captures.load(values)), marks)
    write("input", tuple(args), kwargs)
