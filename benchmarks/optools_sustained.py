# SPDX-License-Identifier: Apache-2.0
"""What op_tools cost a run that goes on: 50 steps in one go, plain steps before and after them.

    python -m benchmarks.optools_sustained [--model gpt-small-wide] [--device npu] [--steps 50]
        [--tools capture,overflow] [--rounds 1] [--memory 0]

`python -m benchmarks.optools` times single steps, in which a queue is never full and a disk never
behind. Here everything counts, stop() included, and what the disk takes is measured beside it.
Without flags: every figure that has a bar, in under 5 minutes on an idle machine. Those of a step
of GPT tiny, of a small add under OpAutoCompare and of starting and stopping come last.
--memory N: so many steps under each tool instead, and how the process's memory grew.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable

import torch

from benchmarks import models
from benchmarks.optools import BARS as STEP_BARS
from benchmarks.optools import _forget_files, _resident, tools, with_tool

# Slowdown of a step that lasts, wall time; a capture may instead fill the disk.
BARS = {"overflow": 1.35, "capture": 3.5, "autocompare": 3.5}
DISK_SHARE = 0.8
SWITCH_BAR = 20.0  # milliseconds to start and stop a tool
CHUNK = 4 << 20


def disk_speed(folder: str, size: int = 1 << 30) -> float:
    """Bytes a second that a file in the folder takes, past the page cache where it can be."""
    chunk = mmap.mmap(-1, CHUNK)
    chunk.write(os.urandom(1 << 20) * (CHUNK >> 20))
    path = os.path.join(folder, "disk-speed")
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    try:
        file = os.open(path, flags | os.O_DIRECT)
    except OSError:  # a file system in memory
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        file = os.open(path, flags)
    try:
        start = time.perf_counter()
        for at in range(0, size, CHUNK):
            os.pwrite(file, chunk, at)
        os.fsync(file)
        return size / (time.perf_counter() - start)
    finally:
        os.close(file)
        os.unlink(path)


def _times(step: Callable[[], object], count: int) -> list[float]:
    took = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        took.append(time.perf_counter() - start)
    return took


class Sustained:
    """One round: plain steps, steps with the tool until it has stopped, plain steps."""

    def __init__(self, step: Callable[[], object], start: Callable[[], object], steps: int) -> None:
        before = _times(step, steps // 2)
        tool = start()
        tool.report = lambda: None
        core = tool._core
        begin = time.perf_counter()
        self.took = _times(step, steps)
        tool.stop()
        self.seconds = time.perf_counter() - begin
        assert not core.failure, core.failure
        self.totals = tool.totals() if hasattr(tool, "totals") else {}
        _forget_files(tool)
        self.plain = statistics.mean(before + _times(step, steps // 2))

    def ratio(self) -> float:
        return self.seconds / len(self.took) / self.plain

    def part(self, of: slice) -> float:
        return statistics.mean(self.took[of]) / self.plain

    def rate(self) -> float:
        """Bytes a second that reached the files."""
        held = self.totals
        return (held.get("blob_bytes", 0) + held.get("log_bytes", 0)) / self.seconds


def measure_tool(
    name: str, step: Callable[[], object], start: Callable[[], object], asked: argparse.Namespace
) -> None:
    rounds, speeds = [], []
    for _ in range(asked.rounds):
        with contextlib.redirect_stdout(io.StringIO()):
            rounds.append(Sustained(step, start, asked.steps))
        if rounds[-1].rate():
            speeds.append(disk_speed(os.environ["OP_CAPTURE_DIR"]))
    ratio = statistics.median(each.ratio() for each in rounds)
    first = statistics.median(each.part(slice(0, 5)) for each in rounds)
    last = statistics.median(each.part(slice(-asked.steps // 2, None)) for each in rounds)
    text = f"  {name:<20} {ratio:.2f}x of {1e3 * rounds[-1].plain:.1f} ms over {asked.steps} steps and "
    text += f"stop (first five {first:.2f}x, second half {last:.2f}x)"
    met = name not in BARS or ratio <= BARS[name]
    if speeds:
        share = statistics.median(each.rate() / speed for each, speed in zip(rounds, speeds))
        size = rounds[-1].totals["blob_bytes"] / asked.steps / 1e6
        text += f"; {size:.0f} MB a step at {rounds[-1].rate() / 1e9:.2f} GB/s, {share:.0%} of the "
        text += f"{statistics.median(speeds) / 1e9:.2f} GB/s the disk takes"
        met = met or share >= DISK_SHARE
    if name in BARS:
        more = f" or {DISK_SHARE:.0%} of the disk" if speeds else ""
        text += f"; bar {BARS[name]}x{more} {'met' if met else 'MISSED'}"
    print(text, flush=True)


def measure_switching(device: str) -> None:
    """Starting and stopping each tool, and a step of GPT tiny under those with a bar for it."""
    step = models.build("gpt-tiny").to(device)
    _times(step, 3)
    took = {}
    for name, start in tools().items():
        if "backward" in name:
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            ratio, took[name] = with_tool(step, start, 20 if name == "overflow" else 6)
        if name == "overflow":
            bar = STEP_BARS[name][0]
            verdict = "met" if ratio.meets(bar) else "MISSED"
            print(f"gpt-tiny, overflow: {ratio}; bar {bar}x {verdict}", flush=True)
    listed = ", ".join(f"{name} {ms:.1f}" for name, ms in took.items())
    worst = max(ms for name, ms in took.items() if "API" not in name)
    verdict = "met" if worst <= SWITCH_BAR else "MISSED"
    print(f"start + stop, ms: {listed}; bar {SWITCH_BAR:g} ms {verdict}", flush=True)


def measure_small_call(device: str) -> None:
    """A call of nothing much under OpAutoCompare, until it is judged."""
    import op_tools

    x = torch.ones(8, device=device)
    tool = op_tools.OpAutoCompare()
    tool.every = 1
    tool.report = lambda: None
    tool.start()
    x + x
    tool.wait()
    count = 2000
    start = time.perf_counter()
    for _ in range(count):
        x + x
    tool.wait()
    took = (time.perf_counter() - start) / count
    tool.stop()
    print(f"a small add under OpAutoCompare: {1e6 * took:.1f} us", flush=True)


def measure_memory(
    name: str, step: Callable[[], object], start: Callable[[], object], steps: int
) -> None:
    """How the process grew from the first fifth of the steps on."""
    with contextlib.redirect_stdout(io.StringIO()):
        tool = start()
        tool.report = lambda: None
        for _ in range(steps // 5):
            step()
        wait = getattr(tool, "wait", lambda: None)
        wait()
        early = _resident()
        for _ in range(steps - steps // 5):
            step()
        wait()
        late = _resident()
        tool.stop()
        _forget_files(tool)
    print(
        f"  {name:<20} {early / 2**20:.0f} MiB -> {late / 2**20:.0f} MiB, {late / early - 1:+.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="gpt-small-wide")
    parser.add_argument("--device", default="npu")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tools", default="", help="comma-separated; by default those with a bar")
    parser.add_argument("--memory", type=int, default=0, metavar="STEPS")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    for device in asked.device.split(","):
        if device == "npu":
            import torch_npu  # noqa: F401
        os.environ["OP_TOOLS_DEVICE"] = device
        step = models.build(asked.model).to(device)
        _times(step, 3)
        print(f"{asked.model} on {device}, {asked.threads} threads, wall time", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["OP_CAPTURE_DIR"] = folder
            chosen = asked.tools.split(",") if asked.tools else () if asked.memory else BARS
            for name, start in tools().items():
                if "backward" in name or (chosen and name.split(",")[0] not in chosen):
                    continue
                if asked.memory:
                    measure_memory(name, step, start, asked.memory)
                else:
                    measure_tool(name, step, start, asked)
            if not asked.tools and not asked.memory:
                measure_small_call(device)
                measure_switching(device)
            del os.environ["OP_CAPTURE_DIR"]


if __name__ == "__main__":
    main()
