# SPDX-License-Identifier: Apache-2.0
"""What a steady training loop asks of memory: driver allocations after step 2, and its peak.

python -m benchmarks.steady
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import torch

from benchmarks import models

CPU_DEVICE_TYPE = 0


def driver_allocations(name: str = "gpt-tiny", steps: int = 10) -> int:
    """Calls into the driver's allocator in `steps` steps that follow the second."""
    step = models.build(name).to("npu")
    step(), step()
    before = torch.npu.memory_stats()["num_device_alloc"]
    for _ in range(steps):
        step()
    return torch.npu.memory_stats()["num_device_alloc"] - before


def _cpu_peak(name: str) -> int:
    """Most bytes alive at once, as the profiler saw them come and go."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        step = models.build(name).to("cpu")
        step(), step()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    memory = sorted(
        (e["ts"], e["args"]["Bytes"])
        for e in events
        if e.get("name") == "[memory]" and e["args"].get("Device Type") == CPU_DEVICE_TYPE
    )
    alive = peak = 0
    for _, change in memory:
        alive += change
        peak = max(peak, alive)
    return peak


def _npu_peak(name: str) -> int:
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    step = models.build(name).to("npu")
    step(), step()
    return torch.npu.max_memory_allocated() - before


def peak_ratio(name: str = "gpt-medium") -> float:
    return _npu_peak(name) / _cpu_peak(name)


if __name__ == "__main__":
    import torch_npu  # noqa: F401

    print(f"driver allocations in 10 steps after the second: {driver_allocations()}")
    print(f"peak memory of a gpt-medium step against CPU's:  {peak_ratio():.3f}x")
