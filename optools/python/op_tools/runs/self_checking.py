# SPDX-License-Identifier: Apache-2.0
"""Does a tool change what it watches? A step with and without it, bit by bit.

def step():
    model.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    return loss, [p.grad for p in model.parameters()]

op_tools.self_check(op_tools.OpAutoCompare, step)
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from op_tools.core import options
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import many
from op_tools.runs.step_bits import bits_of


class SelfCheckError(AssertionError):
    """A tool changed a result, or the step gives another one each time."""


class Cost(NamedTuple):
    tensors: int
    plain_ms: float
    with_tool_ms: float

    @property
    def ratio(self) -> float:
        return self.with_tool_ms / self.plain_ms if self.plain_ms else float("inf")


def self_check(
    tool: type[OpTool] | Callable[[], OpTool], step: Callable[[], object], *, repeats: int = 3
) -> Cost:
    """Runs `step` with and without the tool and compares every tensor it returns.

    `step` has to give the same again when it is called again; random numbers are the same for each
    run. Raises SelfCheckError when a bit differs; prints and returns what the tool cost.
    """
    name = getattr(tool, "__name__", "tool")
    plain, plain_ms = _run(step)
    again, _ = _run(step)
    _compare(plain, again, f"{name}: the step itself gives another result the second time")
    off, on = [plain_ms], []
    for _ in range(repeats):
        off.append(_run(step)[1])
        watched, took = _run_with(tool, step)
        on.append(took)
        _compare(plain, watched, f"{name} changes the results of the program")
    cost = Cost(len(plain), statistics.median(off), statistics.median(on))
    print(
        f"{name}: {many(cost.tensors, 'tensor')} bit-equal with and without it; a step takes "
        f"{cost.with_tool_ms:.2f} ms instead of {cost.plain_ms:.2f} ({cost.ratio:.2f}x)"
    )
    return cost


def _run(step: Callable[[], object]) -> tuple[list[tuple], float]:
    """What the step gave, as bits, and the milliseconds it took."""
    with _same_random_numbers():
        begin = time.perf_counter()
        result = step()
        _wait()
        took = (time.perf_counter() - begin) * 1e3
    return [bits_of(t) for t in tree_leaves(result) if isinstance(t, torch.Tensor)], took


def _run_with(tool: Callable[[], OpTool], step: Callable[[], object]) -> tuple[list[tuple], float]:
    """Until the tool has stopped: what it does later is part of its cost."""
    watching = tool()
    with contextlib.redirect_stdout(io.StringIO()):
        begin = time.perf_counter()
        watching.start()
        started = time.perf_counter()
        try:
            bits, took = _run(step)
        finally:
            stopping = time.perf_counter()
            watching.stop()
        after = (time.perf_counter() - stopping + started - begin) * 1e3
    return bits, took + after


@contextlib.contextmanager
def _same_random_numbers():
    accelerator = options.accelerator()
    devices = range(torch.accelerator.device_count()) if accelerator else []
    with torch.random.fork_rng(devices, device_type=accelerator or "cuda"):
        torch.manual_seed(1234)
        yield


def _wait() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


def _compare(expected: list[tuple], got: list[tuple], what: str) -> None:
    if len(expected) != len(got):
        raise SelfCheckError(f"{what}: {many(len(got), 'tensor')} instead of {len(expected)}")
    for i, (a, b) in enumerate(zip(expected, got)):
        if a != b:
            raise SelfCheckError(f"{what}: tensor {i} of {len(expected)}, {a[0]} {list(a[1])}")
