# SPDX-License-Identifier: Apache-2.0
"""op-tools ls: captures below a path, or the calls of one capture."""

from __future__ import annotations

import argparse
import json
import os
import sys

from op_tools import captures
from op_tools.captures import CaptureError, Record
from op_tools.cli.common import add_filters, chosen, no_match, tell_problems
from op_tools.core.printing import many


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path")
    parser.add_argument("--json", action="store_true", help="one JSON object per call")
    parser.add_argument("--ops", action="store_true", help="one line per operator and phase")
    add_filters(parser)


def run(flags: argparse.Namespace) -> int:
    found = captures.find(flags.path)
    if not found:
        raise CaptureError(f"no capture at or below {flags.path}")
    if len(found) > 1:
        return _list_captures(found)
    capture = captures.open(found[0])
    if flags.op and next(capture.select(flags.op), None) is None:
        print(no_match(flags.path, flags.op), file=sys.stderr)
    elif flags.ops:
        _list_operators(capture, flags)
    else:
        for record in chosen(capture, flags):
            print(json.dumps(_as_json(record)) if flags.json else _line(record))
    return tell_problems(capture)


def _list_captures(folders: list[str]) -> int:
    bad = 0
    for folder in folders:
        try:
            capture = captures.open(folder)
        except CaptureError as error:
            print(error, file=sys.stderr)
            bad = 1
            continue
        size = sum(entry.stat(follow_symlinks=False).st_size for entry in os.scandir(folder))
        state = "" if capture.finished else "  not finished"
        state += f"  {many(len(capture.problems), 'problem')}" if capture.problems else ""
        print(f"{folder}  {many(len(capture), 'call')}  {size / 2**20:.1f} MiB{state}")
    return bad


def _line(record: Record) -> str:
    place = f"  {record.module}" if record.module else ""
    place += f"  {record.site}" if record.site else ""
    return (
        f"{record.number:>8} {record.step:>4} {record.phase:<9} {record.op:<36} "
        f"{record.signature()}{place}"
    )


def _as_json(record: Record) -> dict:
    names = (
        "number op phase step thread sequence forward api api_call module site start_ns end_ns "
        "raised"
    ).split()
    out = {name: getattr(record, name) for name in names}
    out["tensors"] = [
        {
            "place": place,
            "dtype": str(ref.dtype).removeprefix("torch."),
            "shape": ref.shape,
            "stride": ref.stride,
            "device": ref.device,
            "hash": ref.hash,
            "reason": ref.reason,
        }
        for place, ref in record.tensors()
    ]
    return out


def _list_operators(capture: captures.Capture, flags: argparse.Namespace) -> None:
    rows: dict[tuple[str, str], list[int]] = {}
    for record in chosen(capture, flags):
        row = rows.setdefault((record.op, record.phase), [0, 0])
        row[0] += 1
        row[1] += sum(ref.nbytes for _, ref in record.tensors())
    for (op, phase), (count, size) in sorted(rows.items(), key=lambda item: -item[1][0]):
        print(f"{count:>8} {phase:<9} {op:<44} {size / 2**20:>10.2f} MiB of operands")
