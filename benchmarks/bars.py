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


def _small(name: str, limit: float, what: str = "", reason: str = "") -> Bar:
    return Bar(name, what or f"{name}, 64 floats", "the same on CPU", limit, reason=reason)


def _step(name: str, what: str, limit: float = 1.0) -> Bar:
    return Bar(name, f"training step, {what}", "CPU eager", limit)


def _calls(name: str, what: str) -> Bar:
    return Bar(name, what, "the same on CPU", 1.0)


def _rung5(name: str, what: str) -> Bar:
    return Bar(name, f"training step, {what}, every operator through rung 5", "CPU eager", 2.0)


BARS = [
    _small("add", 0.7),
    _small("mul", 0.7),
    _small("relu", 0.7),
    _small("sum", 1.0),
    _small("copy", 0.7, "copy_, 64 floats"),
    _small("add-broadcast", 0.85, "add of 8x8 and 8 floats"),
    _small("add-rung4", 1.15, "add, 64 floats, through rung 4"),
    _small("add-1m", 1.02, "add, a million floats"),
    _small("sum-1m", 1.02, "sum, a million floats"),
    _small("mm-512", 1.02, "matrix product, 512x512"),
    _small("normal-1m", 0.5, "normal_, a million floats"),
    _small("uniform-1m", 0.5, "uniform_, a million floats"),
    _small("dropout-1m", 0.1, "dropout, a million floats"),
    Bar("adamw-foreach", "AdamW, 150 tensors, 9.6M parameters", "CPU's foreach", 0.667),
    Bar("adamw-fused", "fused AdamW, the same tensors", "CPU's fused", 1.0),
    _calls("stack", "training step, 20 Linear(16)"),
    _calls("one-token", "GPT tiny, forward of one token"),
    _calls("generate", "GPT tiny, 16 tokens generated"),
    # With the CPU's bits, MKL's products alone are 0.21, 0.78 and 0.88 of CPU eager's step.
    _step("gpt-tiny", "GPT tiny", 0.85),
    _step("gpt-small", "GPT small", 1.0),
    _step("gpt-medium", "GPT medium", 1.0),
    _step("gpt-tiny-wide", "GPT tiny, vocabulary 256", 0.85),
    _step("gpt-small-wide", "GPT small, vocabulary 2,000", 1.0),
    _step("gpt-medium-wide", "GPT medium, 8 heads, vocabulary 8,000", 1.0),
    _step("gpt-tiny-dropout", "GPT tiny, dropout 0.1"),
    _step("gpt-small-dropout", "GPT small, dropout 0.1"),
    _step("gpt-medium-dropout", "GPT medium, dropout 0.1"),
    _rung5("gpt-tiny-rung5", "GPT tiny"),
    _rung5("gpt-small-rung5", "GPT small"),
    _rung5("gpt-medium-rung5", "GPT medium"),
    _step("resnet", "ResNet-18-like at 32x32"),
    _step("lstm", "LSTM language model"),
    Bar("import", "`import torch_npu` after `import torch`", "-", 150, "ms"),
    Bar("allocator", "allocate + free pair, C++, one thread, 4 KiB", "-", 0.1, "us"),
    Bar("steady", "driver allocations after step 2 of a training loop", "-", 0, "calls"),
    Bar("peak-memory", "peak device memory, GPT medium step", "CPU eager's peak", 1.05),
]

# Measured and shown without a bar.
WATCHED = {
    "sgd-fused": "fused SGD with momentum, 150 tensors, against CPU's fused",
    "clip-grad-norm": "clip_grad_norm_ over 150 tensors, against CPU",
    "null-call": "one native call (fill) into the null driver, everything above it included",
}
