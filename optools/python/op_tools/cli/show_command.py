# SPDX-License-Identifier: Apache-2.0
"""op-tools show: one call of a capture."""

from __future__ import annotations

import argparse

import torch

from op_tools import captures
from op_tools.captures import CaptureError, Record, TensorRef, brief
from op_tools.cli.common import tell_fields
from op_tools.core import _C


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("capture")
    parser.add_argument("number", type=int, help="the call's number, as `ls` prints it")
    parser.add_argument("--values", action="store_true", help="print the tensors' elements")


def run(flags: argparse.Namespace) -> int:
    capture = captures.open(flags.capture)
    record = next((r for r in capture if r.number == flags.number), None)
    if record is None:
        raise CaptureError(f"{capture.path} has no call {flags.number}")
    _head(record)
    bad = 0
    for place, ref in record.tensors():
        bad |= _tensor(place, ref, flags.values)
    return bad


def _head(record: Record) -> None:
    print(f"{record.op}  call {record.number}")
    if record.schema:
        print(f"  {record.schema}")
    print(f"  {record.phase}, step {record.step}, thread {record.thread}")
    tell_fields(
        ("forward call", record.forward),
        ("API", record.api),
        ("module", record.module),
        ("at", record.site),
        ("raised", record.raised),
    )
    if record.end_ns:
        print(f"  took {(record.end_ns - record.start_ns) / 1e3:.1f} us")
    for i, value in enumerate(record.args):
        print(f"  args[{i}] = {brief(value)}")
    for key, value in record.kwargs.items():
        print(f"  {key} = {brief(value)}")
    for i, value in enumerate(record.outputs):
        print(f"  outputs[{i}] = {brief(value)}")


def _tensor(place: str, ref: TensorRef, values: bool) -> int:
    text = f"{place}: {ref.describe()} on {ref.device}, strides {list(ref.stride)}"
    if ref.requires_grad:
        text += ", requires grad"
    if ref.hash is None:
        print(f"{text}: {ref.reason or 'empty'}")
        return 0
    try:
        tensor = ref.load()
    except CaptureError as error:
        print(f"{text}: {error}")
        return 1
    print(f"{text}, hash {ref.hash}")
    stats = _C.statistics(tensor.resolve_conj().resolve_neg())
    print("    " + ", ".join(f"{name} {stats[name]:g}" for name in ("min", "max", "nan", "zero")))
    if values:
        with torch.no_grad():
            print(f"    {tensor.detach()}")
    return 0
