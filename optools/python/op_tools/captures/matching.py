# SPDX-License-Identifier: Apache-2.0
"""Which call of one capture is which of another: in the order they began, by operator, phase,
step and shapes."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from op_tools.captures import Record, leaves


@dataclass
class Matching:
    pairs: list[tuple[Record, Record]]
    only_a: list[Record]
    only_b: list[Record]


def match(a: list[Record], b: list[Record]) -> Matching:
    keys_a, keys_b = [_key(r) for r in a], [_key(r) for r in b]
    if keys_a == keys_b:
        return Matching(list(zip(a, b)), [], [])
    blocks = difflib.SequenceMatcher(None, keys_a, keys_b, autojunk=False).get_matching_blocks()
    pairs = [(i + n, j + n) for i, j, size in blocks for n in range(size)]
    in_a, in_b = {i for i, _ in pairs}, {j for _, j in pairs}
    return Matching(
        [(a[i], b[j]) for i, j in pairs],
        [record for i, record in enumerate(a) if i not in in_a],
        [record for j, record in enumerate(b) if j not in in_b],
    )


def _key(record: Record) -> tuple:
    given = {"args": record.args, "kwargs": record.kwargs}
    shapes = tuple((place, ref.shape, ref.dtype) for place, ref in leaves(given, ""))
    return record.op, record.phase, record.step, shapes
