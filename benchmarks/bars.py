# SPDX-License-Identifier: Apache-2.0
"""The speed we hold ourselves to, as data. docs/performance.md shows it beside what was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bar:
    """`limit` is met when the lower end of the measured interval is at or below it."""

    name: str
    what: str
    against: str
    limit: float
    unit: str = "x"
    # Why a missed bar is missed, found by profiling; empty while it is met.
    reason: str = ""


BARS = [
    Bar("add-boxed", "add of two 64-float tensors through boxed rung 4", "the same on CPU", 1.6),
    Bar("gpt-tiny", "training step, GPT tiny", "CPU eager", 1.25),
    Bar("gpt-small", "training step, GPT small", "CPU eager", 1.1),
    Bar("gpt-medium", "training step, GPT medium", "CPU eager", 1.03),
    Bar("import", "`import torch_npu` after `import torch`", "-", 150, "ms"),
    Bar("allocator", "allocate + free pair, C++, one thread, 4 KiB", "-", 0.1, "us"),
    Bar("steady", "driver allocations after step 2 of a training loop", "-", 0, "calls"),
]

# Measured and shown without a bar.
WATCHED = {
    "resnet": "training step, ResNet-18-like at 32x32, against CPU eager",
    "lstm": "training step, LSTM language model, against CPU eager",
    "null-call": "one native call (fill) into the null driver, everything above it included",
}
