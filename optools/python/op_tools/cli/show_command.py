# SPDX-License-Identifier: Apache-2.0
"""op-tools show: one call of a capture."""

from __future__ import annotations

import argparse
import math

import torch

from op_tools import captures
from op_tools.captures import CaptureError, Record, TensorRef, brief
from op_tools.cli.common import tell_fields
from op_tools.core import _C, first_line
from op_tools.core.printing import printable

MOST_SHOWN = 1024  # times an element may be looked at again


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
        print(f"  {printable(str(key))} = {brief(value)}")
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
        tensor, stored = ref.laid_out(), ref.elements()
        many = ref.numel > MOST_SHOWN * max(stored.numel(), 1)
        looked = stored if many else tensor.resolve_conj().resolve_neg()
        stats = _C.statistics(looked)
    except (CaptureError, RuntimeError) as error:  # a dtype without arithmetic
        print(f"{text}: {first_line(error)}")
        return 1
    print(f"{text}, hash {ref.hash}")
    said = f" (of the {stored.numel()} elements it repeats)" if many else ""
    line = ", ".join(f"{name} {stats[name]:g}" for name in ("min", "max", "nan", "zero"))
    print(f"    {line}{said}")
    if values:
        _print_values(looked)
    return 0


def _print_values(tensor: torch.Tensor) -> None:
    """PyTorch leaves out the middle of long dimensions, and of short ones nothing, however many."""
    printed = math.prod(min(size, 7) for size in tensor.shape)
    with torch.no_grad():
        print(f"    {tensor.detach() if printed <= 20_000 else tensor.detach().reshape(-1)}")
