# SPDX-License-Identifier: Apache-2.0
"""op-tools diff: two captures of the same program, call by call.

Calls are matched in the order they began, by operator, phase, step and shapes; what only one of
the two made is skipped and counted. The first call whose inputs agree and whose results do not is
the one to look at.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator

import torch

from op_tools import captures
from op_tools.captures import CaptureError, Record, TensorRef, leaves
from op_tools.cli.common import add_filters, chosen, tell_problems


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--rtol", type=float, default=0.0, help="relative difference to overlook")
    parser.add_argument("--all", action="store_true", help="print calls that agree too")
    add_filters(parser)


def run(flags: argparse.Namespace) -> int:
    a, b = captures.open(flags.a), captures.open(flags.b)
    left, right = list(chosen(a, flags)), list(chosen(b, flags))
    pairs, alone_a, alone_b = match(left, right)
    first = None
    differ = 0
    for one, other in pairs:
        given = difference(one.args, other.args, "args")
        made = difference(_made(one), _made(other), "outputs")
        bad = bool(made) and worst(made) > flags.rtol
        differ += bad
        if bad and first is None and not (given and worst(given) > flags.rtol):
            first = (one, other, made)
        if bad or flags.all:
            _tell(one, other, given, made)
    print(
        f"{len(pairs)} calls compared, {differ} differ; {alone_a} only in {a.path}, "
        f"{alone_b} only in {b.path}"
    )
    if first is not None:
        one, other, made = first
        print(
            f"first call with equal inputs and other results: {one.op}  {one.number} / {other.number}"
        )
        for line in filter(None, (one.module, one.site, f"{made[0][0]}: {made[0][2]}")):
            print(f"  {line}")
    unread = tell_problems(a) | tell_problems(b)
    return 1 if differ or alone_a or alone_b or unread else 0


def _key(record: Record) -> tuple:
    shapes = tuple((place, ref.shape, ref.dtype) for place, ref in leaves(record.args, "args"))
    return record.op, record.phase, record.step, shapes


def match(a: list[Record], b: list[Record]) -> tuple[list[tuple[Record, Record]], int, int]:
    """Pairs in order; how many of each are alone."""
    keys_a, keys_b = [_key(r) for r in a], [_key(r) for r in b]
    if keys_a == keys_b:
        return list(zip(a, b)), 0, 0
    blocks = difflib.SequenceMatcher(None, keys_a, keys_b, autojunk=False).get_matching_blocks()
    pairs = [(a[i + n], b[j + n]) for i, j, size in blocks for n in range(size)]
    return pairs, len(a) - len(pairs), len(b) - len(pairs)


def _made(record: Record) -> list:
    return [record.outputs, record.after, record.grad_inputs]


def difference(a: object, b: object, name: str) -> list[tuple[str, float, str]]:
    """(place, relative difference, text) of tensors that are not the same bits."""
    return list(_differences(dict(leaves(a, name)), dict(leaves(b, name))))


def _differences(
    a: dict[str, TensorRef], b: dict[str, TensorRef]
) -> Iterator[tuple[str, float, str]]:
    for place, one in a.items():
        other = b.get(place)
        if other is None or one.shape != other.shape or one.dtype != other.dtype:
            said = other.describe() if other else "nothing"
            yield place, float("inf"), f"{one.describe()} and {said}"
        elif one.hash != other.hash or one.stride != other.stride:
            yield from _compare(place, one, other)


def _compare(place: str, one: TensorRef, other: TensorRef) -> Iterator[tuple[str, float, str]]:
    try:
        x, y = one.load(), other.load()
    except CaptureError:
        if one.hash != other.hash and None not in (one.hash, other.hash):
            yield place, float("inf"), "other bits"
        return
    same = (x == y) | ((x != x) & (y != y))
    if bool(same.all()):
        return  # the same values in another order of memory, or other bits of NaN
    wide = torch.complex128 if x.is_complex() else torch.float64
    gap = (x.to(wide) - y.to(wide)).abs()
    gap = torch.where(same, torch.zeros_like(gap), gap)
    scale = y.to(wide).abs().max().item() or 1.0
    relative = gap.max().item() / scale
    relative = relative if relative == relative else float("inf")
    count = int((~same).sum())
    yield place, relative, f"{count} of {x.numel()} elements, at most {relative:.3g} of the largest"


def worst(found: list[tuple[str, float, str]]) -> float:
    return max((relative for _, relative, _ in found), default=0.0)


def _tell(one: Record, other: Record, given: list, made: list) -> None:
    state = "differ" if made else "same"
    inputs = "inputs differ" if given else "same inputs"
    print(f"{one.number:>8} {other.number:>8} {one.phase:<9} {one.op:<36} {state}, {inputs}")
    for place, _, text in made:
        print(f"{'':>18}{place}: {text}")
