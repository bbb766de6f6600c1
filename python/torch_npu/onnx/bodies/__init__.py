# SPDX-License-Identifier: Apache-2.0
"""Bodies of the nodes of domain `npu`: what each computes, in operators of ONNX itself.

A module a family. Each holds functions that are given a call's arguments, by the names of the
operator's schema (a tensor is anything but None), and answer with a `Body`, or None where ONNX
cannot say it. Bodies compute in float32 and give results the dtype of their first input, as the
device does; they are text of ONNX's own syntax, correct for opset 18 and later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import import_module

FAMILIES = ("norms", "gates", "places", "boxes", "scores")
_CHOOSERS: dict[str, Callable] = {}


@dataclasses.dataclass(frozen=True)
class Body:
    inputs: str  # names of the tensors the text reads, in the schema's order: "x, gamma"
    outputs: str
    text: str  # one statement a line
    suffix: str = ""  # of the node's name, where arguments choose among several texts
    attributes: str = ""  # names of the attributes the text refers to


def body_of(*operators: str):
    """Decorates a function that chooses the body of a call of "name" or "name.overload"."""

    def note(choose):
        for operator in operators:
            _CHOOSERS[operator] = choose
        return choose

    return note


def choosers() -> dict[str, Callable]:
    for family in FAMILIES:
        import_module(f"torch_npu.onnx.bodies.{family}")
    return _CHOOSERS
