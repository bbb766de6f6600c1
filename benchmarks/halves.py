# SPDX-License-Identifier: Apache-2.0
"""Training steps in half types against the same step in float32, on one device, with and without the CPU's instructions.

python -m benchmarks.halves [--clock cpu] [--pairs N] [--device cpu] [--products cpu]

A CPU with fewer instructions is imitated: the libraries are told to do without (`IMITATED`), in a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable

import torch

from benchmarks import measure, models

MODELS = ("resnet", "gpt-small")
FORMS = ("bfloat16", "float16", "autocast bfloat16", "autocast float16")
IMITATED = {
    "this CPU": {},
    "AVX-512 without bf16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
    "AVX2": {
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ATEN_CPU_CAPABILITY": "avx2",
    },
}
LIMIT = 1.5  # of the float32 step, where the CPU has no instructions for the half type


def make_step(name: str, form: str, device: str) -> Callable[[], object]:
    """A training step; `form` is a dtype of weights and images, or autocast and its dtype."""
    step = models.build(name).to(device)
    dtype = getattr(torch, form.rpartition(" ")[2])
    if not form.startswith("autocast"):
        step.model.to(dtype)
        step.batch = [t.to(dtype) if t.is_floating_point() else t for t in step.batch]
        return step
    plain = step.forward

    def forward() -> torch.Tensor:
        with torch.autocast(device, dtype=dtype):
            return plain()

    step.forward = forward
    return step


def peak(step: Callable[[], object]) -> int:
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    step()
    return torch.npu.max_memory_allocated() - before


def measure_here(given: argparse.Namespace) -> list[dict]:
    torch.set_num_threads(given.threads)
    if given.device == "npu":
        import torch_npu  # noqa: F401
    rows = []
    for name in given.models:
        plain = make_step(name, "float32", given.device)
        for form in given.forms:
            step = make_step(name, form, given.device)
            for fn in (plain, step):
                fn(), fn()
            row = {"model": name, "form": form}
            with contextlib.suppress(AttributeError):
                row["memory"] = peak(step) / peak(plain) if given.device == "npu" else None
            rows.append({**row, **vars(measure.pairs(step, plain, given.pairs))})
            print(f"{name} {form} {rows[-1]['median']:.3f}", file=sys.stderr, flush=True)
    return rows


def measure_imitated(given: argparse.Namespace, variables: dict[str, str]) -> list[dict]:
    env = {**os.environ, **variables}
    if given.products:
        env["NPU_HALF_PRODUCTS"] = given.products
    command = [sys.executable, "-m", "benchmarks.halves", "--here", *sys.argv[1:]]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--here", action="store_true", help="this process only, as JSON")
    parser.add_argument("--clock", choices=measure.CLOCKS, default="wall")
    parser.add_argument("--device", choices=("npu", "cpu"), default="npu")
    parser.add_argument("--products", choices=("auto", "cpu", "float32"), help="NPU_HALF_PRODUCTS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=10, help="how often each step is timed")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--on", nargs="+", choices=IMITATED, default=list(IMITATED))
    given = parser.parse_args()
    measure.use_clock(given.clock)
    if given.here:
        print(json.dumps(measure_here(given)))
        return 0
    print("| CPU | model | in | of the float32 step | peak memory |\n|---|---|---|---|---|")
    for name in given.on:
        for row in measure_imitated(given, IMITATED[name]):
            memory = f"{row['memory']:.2f}x" if row.get("memory") else "-"
            print(
                f"| {name} | {row['model']} | {row['form']} | {row['median']:.2f}x "
                f"[{row['low']:.2f}, {row['high']:.2f}] | {memory} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
