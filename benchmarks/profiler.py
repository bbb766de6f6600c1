# SPDX-License-Identifier: Apache-2.0
"""What device lanes add to a profiled step: torch.profiler with them over the same without.

python -m benchmarks.profiler [--clock cpu] [--pairs N] [model]

Steps are timed while the profile runs; what its end takes (sorting out the events) is shown beside.
"""

from __future__ import annotations

import argparse
import statistics

import torch
import torch_npu  # noqa: F401
from torch.profiler import ProfilerActivity, profile

from benchmarks import measure, models

BAR = 1.15
STEPS = 10
HOST = [ProfilerActivity.CPU]
LANES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def profiled(step, activities) -> tuple[float, float]:
    """Microseconds of a step inside of a profile, and of the profile's end."""
    prof = profile(activities=activities)
    prof.start()
    step()
    took = measure.timed(step, STEPS)
    return took, measure.timed(prof.stop)


def compare(name: str = "gpt-tiny", count: int = 11):
    step = models.build(name).to("npu")
    for _ in range(3):
        step()
    profiled(step, LANES)
    times = {"host": [], "lanes": []}
    ends = {"host": [], "lanes": []}
    for i in range(count):
        for which in ("host", "lanes") if i % 2 else ("lanes", "host"):
            took, end = profiled(step, LANES if which == "lanes" else HOST)
            times[which].append(took)
            ends[which].append(end)
    plain = [measure.timed(step, STEPS) for _ in range(count)]
    return measure.ratio_of(times["lanes"], times["host"]), ends, plain


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="gpt-tiny")
    parser.add_argument("--clock", choices=sorted(measure.CLOCKS), default="wall")
    parser.add_argument("--pairs", type=int, default=11)
    options = parser.parse_args()
    measure.use_clock(options.clock)
    torch.manual_seed(0)
    ratio, ends, plain = compare(options.model, options.pairs)
    end = {which: statistics.median(times) / 1000 for which, times in ends.items()}
    print(f"{options.model}, {options.clock} clock, {options.pairs} pairs of {STEPS} steps")
    print(
        f"with device lanes / without: {ratio}, bar {BAR}x: {'met' if ratio.meets(BAR) else 'missed'}"
    )
    print(f"not profiled: {statistics.median(plain) / 1000:.2f} ms a step")
    print(f"the profile's end: {end['lanes']:.1f} ms with lanes, {end['host']:.1f} ms without")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
