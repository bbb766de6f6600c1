# SPDX-License-Identifier: Apache-2.0
"""What op_tools cost: a training step with a tool on against the plain step, turn by turn.

    python -m benchmarks.optools [--model gpt-tiny] [--device cpu,npu] [--pairs 60] [--clock cpu]
    python -m benchmarks.optools --model gpt-tiny,gpt2-small --device cuda --pairs 20 \\
        --tools observe,time,overflow                                   # on a machine with a GPU

Taps go in and out of the dispatch table between the two sides of a pair, so start and stop are
not part of the ratio; they are timed on their own. A step is over when the device is. ditorch's
figures are printed beside ours.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import shutil
import statistics
import tempfile
import time
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
    "autocompare": (52.0, 17.4),
}
BARS = {  # tiny / small
    "observe": (1.2, 1.03),
    "overflow": (1.6, 1.35),
    "capture": (2.5, 2.5),
    "time": (1.6, 1.2),
    "fallback": (2.5, 1.6),
    "observe, API names": (1.4, 1.4),
    "autocompare": (10.0, 3.5),  # every call, until the last is judged
}
CUDA_BARS = {"observe": 1.15, "time": 1.4, "overflow": 1.4, "overflow, backward": 1.4}


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
        "overflow, backward": lambda: op_tools.OpOverflowCheck().start(),
        "capture": lambda: op_tools.OpCapture().start(),
        "time": lambda: op_tools.OpTimeMeasure().start(),
        "fallback": lambda: op_tools.OpFallback().start(),
        "observe, API names": named,
        "autocompare": lambda: op_tools.OpAutoCompare().start(),
    }


def _forget_files(tool: object) -> None:
    """A capture of each pair would fill the disk."""
    if getattr(tool, "folder", None):
        shutil.rmtree(tool.folder)


def _whole(step: Callable[[], object]) -> float:
    """Microseconds of a step."""
    return measure.timed(step)


def _backward(step: _Waiting) -> float:
    """Microseconds of a step's backward pass."""
    loss = step.forward()
    step.wait()
    took = measure.timed(lambda: (loss.backward(), step.wait()))
    step.optimizer.step()
    step.wait()
    return took


def with_tool(
    step: Callable[[], object],
    start: Callable[[], object],
    count: int,
    time_of: Callable[[Callable[[], object]], float] = _whole,
) -> tuple[Ratio, float]:
    """Ratio of a step, or of a part of it, with the tool on; milliseconds of start + stop."""
    on_times, off_times, switch = [], [], []
    for i in range(count):
        off = time_of(step) if i % 2 else None
        begin = measure.clock()
        tool = start()
        started = measure.clock()
        # What a tool does later is part of the step that caused it.
        wait = getattr(tool, "wait", lambda: None)
        step()  # first use of a tool allocates its buffers
        wait()
        on_times.append(time_of(step) + measure.timed(wait))
        stopping = measure.clock()
        core, tool.report = tool._core, lambda: None
        tool.stop()
        switch.append(started - begin + measure.clock() - stopping)
        assert not core.failure, core.failure
        _forget_files(tool)
        if off is None:
            step()
            off = time_of(step)
        off_times.append(off)
    return measure.ratio_of(on_times, off_times), statistics.median(switch) / 1e6


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def capture_facts(step: Callable[[], object], steps: int, device: str) -> str:
    """What a capture writes, keeps in memory, and how fast it is when data is all there is."""
    import op_tools

    def captured(body: Callable[[], object]) -> tuple[dict, float, int]:
        before = _resident()
        tool = op_tools.OpCapture()
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()), tool:
            body()
            kept = _resident() - before
        seconds = time.perf_counter() - start
        _forget_files(tool)
        return tool.totals(), seconds, kept

    def many() -> None:
        for _ in range(steps):
            step()

    captured(many)  # buffers and code are there afterwards
    totals, _, kept = captured(many)
    records = totals["records"]
    share = totals["blob_bytes"] / totals["operand_bytes"]
    block = [torch.full((1 << 22,), float(i), device=device) for i in range(16)]
    bulk, seconds, _ = captured(lambda: [x.neg() for x in block])
    rate = bulk["seen_bytes"] / seconds / 1e9
    return (
        f"{records // steps} calls and {totals['blob_bytes'] / steps / 2**20:.1f} MiB written a "
        f"step, {share:.0%} of the operands' bytes (bar 30%); {totals['log_bytes'] / records:.0f} "
        f"bytes of log and {max(kept, 0) / records:.0f} of memory a record; {rate:.2f} GB/s of "
        f"tensors never seen before, until they are in the files"
    )


def report_facts(step: Callable[[], object], steps: int) -> str:
    """How fast `op-tools report` is on a capture of so many steps."""
    import op_tools
    from op_tools import report

    tool = op_tools.OpCapture()
    with contextlib.redirect_stdout(io.StringIO()), tool:
        for _ in range(steps):
            step()
    calls = tool.totals()["records"]
    took = []
    for judge in (False, True):
        start = time.perf_counter()
        size = len(report.render(report.gather(tool.folder, report.Options(judge))))
        took.append(time.perf_counter() - start)
    _forget_files(tool)
    return (
        f"report: {calls / took[0]:.0f} calls/s, {calls / took[1]:.0f} judged; "
        f"{size / calls:.0f} bytes of HTML a call"
    )


def _against_bar(name: str, ratio: Ratio, size: int, device: str) -> str:
    bar = CUDA_BARS.get(name) if device == "cuda" else BARS.get(name, (None, None))[size]
    if bar is None:
        return "no bar"
    return f"bar {bar}x {'met' if ratio.meets(bar) else 'MISSED'}"


class _Waiting:
    """A step that is over when the device is."""

    def __init__(self, step: models.Step, device: str) -> None:
        self.forward, self.optimizer, self._step = step.forward, step.optimizer, step
        self.wait = torch.accelerator.synchronize if device != "cpu" else lambda: None

    def __call__(self) -> None:
        self._step()
        self.wait()


def _measure_tools(
    step: Callable[[], object], asked: argparse.Namespace, size: int, device: str
) -> None:
    for name, start in tools().items():
        if asked.tools and name.split(",")[0] not in asked.tools.split(","):
            continue
        time_of = _backward if name.endswith("backward") else _whole
        with contextlib.redirect_stdout(io.StringIO()):
            ratio, switch = with_tool(step, start, asked.pairs, time_of)
        theirs = f"ditorch {DITORCH[name][size]}x, " if name in DITORCH else ""
        print(
            f"  {name:<20} {ratio}  {theirs}{_against_bar(name, ratio, size, device)}; "
            f"start + stop {switch:.1f} ms",
            flush=True,
        )
        if name == "capture":
            print(f"  {'':<20} {capture_facts(step, 5 if size else 20, device)}")
            print(f"  {'':<20} {report_facts(step, 1 if size else 10)}")


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
        for model in asked.model.split(","):
            _measure_model(model, device, asked)


def _measure_model(model: str, device: str, asked: argparse.Namespace) -> None:
    step = _Waiting(models.build(model).to(device), device)
    for _ in range(3):
        step()
    quiet = measure.pairs(step, step, asked.pairs)
    print(
        f"{model} on {device}, {asked.threads} threads, {asked.clock} time; A/A {quiet}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OP_CAPTURE_DIR"] = folder
        _measure_tools(step, asked, 0 if "tiny" in model else 1, device)
        del os.environ["OP_CAPTURE_DIR"]


if __name__ == "__main__":
    main()
