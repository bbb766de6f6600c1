# SPDX-License-Identifier: Apache-2.0
"""What op_tools cost: a training step with a tool on against the plain step, turn by turn.

    python -m benchmarks.optools [--model gpt-tiny] [--device cpu,npu] [--pairs 60] [--clock cpu]

Taps go in and out of the dispatch table between the two sides of a pair, so start and stop are
not part of the ratio; they are timed on their own. ditorch's figures are printed beside ours.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import statistics
from collections.abc import Callable

import torch

from benchmarks import measure, models
from benchmarks.measure import Ratio

# Slowdown of a step under DeepLink's op_tools (torch 1.13, one thread, forward and backward of a
# GPT: 2 layers of width 64 / 4 layers of width 128), as measured by this project.
DITORCH = {
    "observe": (7.7, 2.5),
    "overflow": (30.5, 9.1),
    "capture": (31.4, 6.4),
    "time": (13.9, 3.5),
    "fallback": (14.5, 3.5),
}
BARS = {  # tiny / small
    "observe": (1.2, 1.03),
    "overflow": (1.6, 1.35),
    "capture": (2.5, 2.5),
    "time": (1.6, 1.2),
    "fallback": (2.5, 1.6),
    "observe, API names": (1.4, 1.4),
}


def tools() -> dict[str, Callable[[], object]]:
    import op_tools

    def named() -> object:
        os.environ["OP_OBSERVE_LIST"] = "torch\\..*,aten::.*"
        try:
            return op_tools.OpObserve().start()
        finally:
            del os.environ["OP_OBSERVE_LIST"]

    return {
        "observe": lambda: op_tools.OpObserve().start(),
        "overflow": lambda: op_tools.OpOverflowCheck().start(),
        "capture": lambda: op_tools.OpCapture().start(),
        "time": lambda: op_tools.OpTimeMeasure().start(),
        "fallback": lambda: op_tools.OpFallback().start(),
        "observe, API names": named,
    }


def with_tool(
    step: Callable[[], object], start: Callable[[], object], count: int
) -> tuple[Ratio, float]:
    """Ratio of a step with the tool on; milliseconds of start + stop."""
    on_times, off_times, switch = [], [], []
    for i in range(count):
        off = measure.timed(step) if i % 2 else None
        begin = measure.clock()
        tool = start()
        started = measure.clock()
        step()  # first use of a tool allocates its buffers
        on_times.append(measure.timed(step))
        stopping = measure.clock()
        core, tool.report = tool._core, lambda: None
        tool.stop()
        switch.append(started - begin + measure.clock() - stopping)
        assert not core.failure, core.failure
        if off is None:
            step()
            off = measure.timed(step)
        off_times.append(off)
    return measure.ratio_of(on_times, off_times), statistics.median(switch) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt-tiny")
    parser.add_argument("--device", default="cpu,npu")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--tools", default="", help="comma-separated; all by default")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=measure.CLOCKS, default="wall")
    asked = parser.parse_args()
    measure.use_clock(asked.clock)
    torch.set_num_threads(asked.threads)
    for device in asked.device.split(","):
        if device == "npu":
            import torch_npu  # noqa: F401
        os.environ["OP_TOOLS_DEVICE"] = device
        case = models.build(asked.model)
        step = case.to(device)
        for _ in range(3):
            step()
        quiet = measure.pairs(step, step, asked.pairs)
        print(
            f"{asked.model} on {device}, {asked.threads} threads, {asked.clock} time; A/A {quiet}",
            flush=True,
        )
        size = 0 if "tiny" in asked.model else 1
        for name, start in tools().items():
            if asked.tools and name.split(",")[0] not in asked.tools.split(","):
                continue
            with contextlib.redirect_stdout(io.StringIO()):
                ratio, switch = with_tool(step, start, asked.pairs)
            bar = BARS[name][size]
            theirs = f"ditorch {DITORCH[name][size]}x, " if name in DITORCH else ""
            verdict = "met" if ratio.meets(bar) else "MISSED"
            print(
                f"  {name:<20} {ratio}  {theirs}bar {bar}x {verdict}; start + stop {switch:.1f} ms"
            )


if __name__ == "__main__":
    main()
