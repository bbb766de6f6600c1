# SPDX-License-Identifier: Apache-2.0
"""Damaged YAML of any sort is refused with a line number or read: never another exception."""

import random
import re
from pathlib import Path

import pytest
from yaml_reader import YamlError

GOOD = (
    (Path(__file__).parent / "pack/pack.yaml").read_text(encoding="utf-8")
    + """
  - func: npu_y(Tensor self, *, int[2] n=[1,2]) -> (Tensor, Tensor)
"""
)
KIND = """backend: NPU
cpp_namespace: npu
supported:
  - func: erfinv.out
    kind: unary
  - func: add.out
    kind: binary
    operands: {in: self, other: other}
    attrs: {a: alpha, b: 1.5}
  - func: div.out_mode
    kind: binary
    code: {rounding_mode: {~: div, trunc: div_trunc, floor: div_floor}}
  - func: amax.out
    kind: reduce
    code: max
    impl: reduce_out
  - func: cat.out
    uses: [cat, copy]
"""
PIECES = [
    "[",
    "]",
    "{",
    "}",
    ": ",
    "- ",
    "  ",
    "\n",
    "#",
    "&a ",
    "*a",
    "!!int ",
    "~",
    "12",
    "'",
    "(",
]
PIECES += [")", "->", "Tensor", "...", "é", "\t", "|\n", "func: ", "kind: ", "? "]


def damaged(text: str, seed: int) -> str:
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(text)), chance.choice((0, 1, 3, 20))
        piece = chance.choice(PIECES) if chance.random() < 0.7 else ""
        text = text[:at] + piece + text[at + length :]
    return text


@pytest.mark.parametrize("seed", range(150))
def test_damaged(seed, load, tmp_path):
    text = damaged(GOOD if seed % 2 else KIND, seed)
    try:
        load(text, head="")
    except YamlError as error:
        for line in str(error).splitlines():
            assert re.match(rf"{re.escape(str(tmp_path))}/pack0\.yaml:\d+: .*\.$", line), line


def test_undamaged(load):
    assert load(GOOD, head="").operators and load(KIND, head="").operators
