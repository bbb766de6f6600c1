# SPDX-License-Identifier: Apache-2.0
"""npu on the cuda driver beside torch.cuda, on a machine with an NVIDIA GPU.

python -m benchmarks.gpu [--pairs 5] [--only WORD] [--json FILE]

The two never share a process: PyTorch has no backward on cuda where a plugin is loaded. Each side
runs in processes of its own, turn by turn; a pair of torch.cuda against itself shows the noise.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks import measure

# Time against torch.cuda's, and peak memory of the training steps.
BARS = {
    "issue of a small add": 1.0,
    "issue of a small mul": 1.0,
    "issue of a small sum": 1.0,
    "issue of a small copy": 1.0,
    "GPT tiny, training step": 1.0,
    "GPT-2 small B8 T1024 bf16": 0.97,
    "GPT-2 small B8 T1024 amp": 0.97,
    "Llama 1B B2 T2048 bf16": 1.0,
    "ResNet-50 B128 channels last amp": 1.02,
    "add of 256 MiB": 1.0,
    "mm 8192 bf16": 1.0,
    "attention B8 H12 T1024 D64, both ways": 1.0,
}
PEAK_BAR = 1.05
IMPORT = "import and first step of GPT tiny"
IMPORT_BAR_SECONDS = 0.5


def small_calls(torch, device: str) -> dict:
    x, y = torch.randn(64, 64, device=device), torch.randn(64, 64, device=device)
    out = torch.empty_like(x)
    return {
        "issue of a small add": lambda: x + y,
        "issue of a small mul": lambda: x * y,
        "issue of a small sum": lambda: x.sum(),
        "issue of a small copy": lambda: out.copy_(x),
    }


def large_calls(torch, device: str) -> dict:
    big = torch.randn(64 << 20, device=device)
    a, b = (torch.randn(8192, 8192, device=device, dtype=torch.bfloat16) for _ in range(2))
    shape = (8, 12, 1024, 64)
    q, k, v = (
        torch.randn(shape, device=device, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    )
    grad = torch.randn(shape, device=device, dtype=torch.bfloat16)

    def attention():
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.grad(y, (q, k, v), grad)

    return {
        "add of 256 MiB": lambda: big + big,
        "mm 8192 bf16": lambda: a @ b,
        "attention B8 H12 T1024 D64, both ways": attention,
    }


def side(device: str, only: str) -> dict:
    """All rows of one side, in this process."""
    begin = time.perf_counter()
    import torch

    imported = time.perf_counter() - begin
    begin = time.perf_counter()
    if device == "npu":
        import torch_npu  # noqa: F401
    from benchmarks import gpu_models

    module = getattr(torch, device)
    torch.manual_seed(0)
    rows: dict = {}

    def row(name: str, numbers: Callable[[], dict]) -> None:
        if only in name:
            rows[name] = numbers()
            print(name, rows[name], file=sys.stderr, flush=True)

    def first_step() -> dict:
        gpu_models.gpt_tiny(device)()
        module.synchronize()
        return {"s": time.perf_counter() - begin, "torch_s": imported}

    row(IMPORT, first_step)
    for name, call in small_calls(torch, device).items():
        row(name, lambda call=call: {"us": issue_time(call, module)})
    for name, call in large_calls(torch, device).items():
        row(name, lambda call=call: {"us": step_time(call, module, 20)})
    for name, make in gpu_models.STEPS.items():
        row(name, lambda name=name, make=make: training(torch, module, make, device, name))
    if device == "npu":
        rows["fallbacks"] = torch.npu.fallback_stats()
    return rows


def training(torch, module, make, device: str, name: str) -> dict:
    torch.manual_seed(0)
    step = make(device)
    losses = [float(step()) for _ in range(3)]
    module.synchronize()
    module.reset_peak_memory_stats()
    us = step_time(step, module, 100 if "tiny" in name else 10)
    row = {"us": us, "losses": losses, "peak_mib": module.max_memory_allocated() / 2**20}
    del step
    module.empty_cache()
    return row


def issue_time(call, module) -> float:
    """Host time of one call, the device kept from filling its queue."""
    times = []
    for _ in range(30):
        module.synchronize()
        times.append(measure.timed(call, 100))
    module.synchronize()
    return statistics.median(times[5:])


def step_time(call, module, count: int) -> float:
    for _ in range(3):
        call()
    module.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        call()
    module.synchronize()
    return (time.perf_counter() - begin) * 1e6 / count


def run_side(device: str, only: str) -> dict:
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    if device == "npu":
        env.update(NPU_DRIVER="cuda", NPU_FALLBACK="silent")
    command = [sys.executable, "-m", "benchmarks.gpu", "--side", device, "--only", only]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{device} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def ratio_row(name: str, ours: list[dict], theirs: list[dict], key: str) -> measure.Ratio:
    return measure.ratio_of([r[name][key] for r in ours], [r[name][key] for r in theirs])


def report(ours: list[dict], theirs: list[dict], again: list[dict]) -> None:
    print("| what | npu / torch.cuda | bar | torch.cuda / itself |")
    print("|---|---|---|---|")
    names = [name for name in BARS if name in ours[0]]
    for name in names:
        ratio = ratio_row(name, ours, theirs, "us")
        noise = ratio_row(name, theirs, again, "us")
        print(f"| {name} | {ratio} | {BARS[name]} | {noise.median:.3f}x |")
    for name in names:
        if "peak_mib" in ours[0][name]:
            ratio = ratio_row(name, ours, theirs, "peak_mib").median
            print(f"| peak memory: {name} | {ratio:.3f}x | {PEAK_BAR} | |")
            print(f"| losses: {name} | {ours[0][name]['losses']} | {theirs[0][name]['losses']} | |")
    if IMPORT in ours[0]:
        more = statistics.median(a[IMPORT]["s"] - b[IMPORT]["s"] for a, b in zip(ours, theirs))
        print(f"| {IMPORT}, beyond torch.cuda's | {more:.2f} s | {IMPORT_BAR_SECONDS} s | |")
    print("fallbacks:", json.dumps(ours[0]["fallbacks"])[:2000])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="", help="rows whose name holds this word")
    parser.add_argument("--json", help="a file for all numbers")
    parser.add_argument("--side", choices=("npu", "cuda"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(side(options.side, options.only)))
        return
    ours, theirs, again = [], [], []
    for _ in range(options.pairs):
        theirs.append(run_side("cuda", options.only))
        ours.append(run_side("npu", options.only))
        again.append(run_side("cuda", options.only))
    report(ours, theirs, again)
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"npu": ours, "cuda": theirs, "cuda again": again}, out, indent=1)


if __name__ == "__main__":
    main()
