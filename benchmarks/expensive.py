# SPDX-License-Identifier: Apache-2.0
"""Where a training step's time goes: the ten operators that cost most, on npu and on the CPU.

python -m benchmarks.expensive [model ...]
"""

from __future__ import annotations

import sys

import torch

from benchmarks import models

STEPS, ROWS = 20, 10
MODELS = ("gpt-tiny", "gpt-small", "gpt-medium", "resnet", "lstm")


def by_operator(name: str, device: str) -> dict[str, tuple[float, float]]:
    """Operator -> (microseconds of its own, calls) per step."""
    step = models.build(name).to(device)
    for _ in range(3):
        step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        for _ in range(STEPS):
            step()
    return {
        row.key: (row.self_cpu_time_total / STEPS, row.count / STEPS)
        for row in profile.key_averages()
    }


def table(name: str) -> str:
    ours, theirs = by_operator(name, "npu"), by_operator(name, "cpu")
    top = sorted(ours, key=lambda key: -ours[key][0])[:ROWS]
    lines = [f"{name}: most expensive operators, us per step (calls)", ""]
    for key in top:
        us, calls = ours[key]
        cpu_us, cpu_calls = theirs.get(key, (0.0, 0.0))
        lines.append(
            f"  {key:48} npu {us:10.1f} ({calls:5.1f})   cpu {cpu_us:10.1f} ({cpu_calls:5.1f})"
        )
    total, cpu_total = (sum(us for us, _ in side.values()) for side in (ours, theirs))
    lines.append(
        f"  {'everything, profiler included':48} npu {total:10.1f}           cpu {cpu_total:10.1f}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    import torch_npu  # noqa: F401

    torch.set_num_threads(2)
    for model in sys.argv[1:] or MODELS:
        print(table(model), end="\n\n", flush=True)
