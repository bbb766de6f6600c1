# SPDX-License-Identifier: Apache-2.0
"""Steps of a run, as a reader counts them, and the loss of each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from op_tools.captures import CaptureError, Record, TensorRef


@dataclass
class Step:
    number: int
    label: str
    is_step: bool  # False: what ran after the last step
    loss: float | None = None
    loss_call: int = 0  # the call that made it


def named(phases: dict[int, set[str]]) -> list[Step]:
    """Steps by the phases seen in each. The tools' counter goes up when an optimizer has stepped, so
    what follows the last step (reading the loss) is counted as one more."""
    trains = any("optimizer" in seen for seen in phases.values())
    steps = []
    for place, (number, seen) in enumerate(sorted(phases.items())):
        is_last = place == len(phases) - 1
        if trains and is_last and place and "optimizer" not in seen:
            whole = "backward" in seen
            before = sorted(phases)[place - 1]
            label = f"Step {number}, unfinished" if whole else f"After step {before}"
            steps.append(Step(number, label, whole))
        else:
            steps.append(Step(number, f"Step {number}", True))
    return steps


class Losses:
    """The number backward begins from, of each step: one element, made by the forward call of the
    first backward kernel that has one."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[Record, TensorRef]] = {}  # of this step, by call
        self._roots: dict[int, tuple[Record, TensorRef]] = {}  # by step
        self._step: int | None = None

    def add(self, record: Record) -> None:
        if record.step != self._step:
            self._numbers.clear()
            self._step = record.step
        if record.phase == "forward":
            ref = _number(record)
            if ref is not None:
                self._numbers[record.number] = (record, ref)
        elif record.phase == "backward" and record.step not in self._roots:
            found = self._numbers.get(record.forward)
            if found is not None:
                self._roots[record.step] = found

    def put(self, steps: list[Step]) -> None:
        for step in steps:
            record, ref = self._roots.get(step.number, (None, None))
            if record is None:
                continue
            try:
                step.loss, step.loss_call = _loss(record, ref), record.number
            except (CaptureError, RuntimeError, ValueError):
                continue  # without contents, or contents that cannot be read


def _loss(record: Record, ref: TensorRef) -> float:
    """The number, without the scale that a GradScaler multiplied it by: backward begins from the
    product of two tensors of one element each, the second a power of two above 1."""
    if record.op.partition(".")[0] == "aten::mul":
        factors = [leaf for leaf in record.args if isinstance(leaf, TensorRef) and leaf.numel == 1]
        if len(factors) == 2 and not factors[1].is_number and not factors[1].requires_grad:
            scale = float(factors[1].load().real.item())
            if scale > 1 and math.frexp(scale)[0] == 0.5:
                return float(factors[0].load().real.item())
    return float(ref.load().real.item())


def _number(record: Record) -> TensorRef | None:
    """Its first result, where that is a single floating number."""
    ref = record.outputs[0] if record.outputs else None
    if isinstance(ref, TensorRef) and ref.numel == 1 and ref.dtype.is_floating_point:
        return ref
    return None
