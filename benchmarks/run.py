# SPDX-License-Identifier: Apache-2.0
"""`make bench`: measures every bar here and prints the table; --write records it.

python -m benchmarks.run [name ...] [--write]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

import torch

from benchmarks import bars, ladder, measure, models, operators, optim, steady, table

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
THREADS = 2


def model_step(name: str) -> dict:
    case = models.build(name)
    ours, theirs, again = case.to("npu"), case.to("cpu"), case.to("cpu")
    for step in (ours, theirs, again):
        for _ in range(3):
            step()
    count = 200 if name.startswith("gpt-tiny") else 40
    quiet, ratio = measure.compare(ours, theirs, again, count)
    return {"aa": quiet.median, **vars(ratio)}


def _child(code: str, **env: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **env}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"benchmark child failed:\n{done.stderr}")
    return done.stdout.strip()


def add_rung4() -> dict:
    """The same add where the driver has no kernel for it."""
    code = (
        "import json, torch, torch_npu\n"
        "from benchmarks import operators\n"
        f"torch.set_num_threads({THREADS})\n"
        "print(json.dumps(operators.small('add')))"
    )
    return json.loads(_child(code, NPU_DISABLE_KIND="binary"))


def rung5_step(name: str) -> dict:
    """A step where host code cannot read the device and the driver only copies and fills."""
    code = (
        "import json, torch, torch_npu\n"
        "from benchmarks import run\n"
        f"torch.set_num_threads({THREADS})\n"
        f"print(json.dumps(run.model_step({name!r})))"
    )
    return json.loads(_child(code, **ladder.rung5_environment(True), NPU_FALLBACK="silent"))


def import_time() -> dict:
    code = (
        "import time, torch; t = time.perf_counter(); import torch_npu; "
        "print((time.perf_counter() - t) * 1000)"
    )
    times = sorted(float(_child(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")) for _ in range(11))
    return {"median": statistics.median(times), "low": times[1], "high": times[-2]}


def allocator_pair() -> dict:
    # Short rounds: a long one mostly measures who else is on the machine.
    rounds = (torch.npu.memory._time_allocate_free(4096, 2000) for _ in range(301))
    times = sorted(ns / 1000 for ns in rounds)
    return {"median": statistics.median(times), "low": times[7], "high": times[-8]}


def steady_state() -> dict:
    calls = steady.driver_allocations()
    return {"median": calls, "low": calls, "high": calls}


def peak_memory() -> dict:
    ratio = steady.peak_ratio()
    return {"median": ratio, "low": ratio, "high": ratio}


def null_call() -> dict:
    code = (
        "import torch, torch_npu\n"
        "from benchmarks.measure import timed\n"
        "x = torch.empty(64, device='npu')\n"
        "print(min(timed(lambda: x.fill_(1.0), 20000) for _ in range(11)))"
    )
    us = float(_child(code, NPU_DRIVER="null", NPU_NULL_ACCEPT="1"))
    return {"median": us, "low": us, "high": us, "unit": "us"}


MODELS = (
    *("gpt-tiny", "gpt-small", "gpt-medium"),
    *("gpt-tiny-wide", "gpt-small-wide", "gpt-medium-wide"),
    *("gpt-tiny-dropout", "gpt-small-dropout", "gpt-medium-dropout"),
    *("resnet", "lstm"),
)
MEASURES = {
    **{name: partial(operators.small, name) for name in operators.SMALL_OPERATORS},
    "add-rung4": add_rung4,
    **{name: partial(operators.large, name) for name in operators.LARGE_OPERATORS},
    **{name: partial(ladder.small_calls, name) for name in ladder.SMALL_CALLS},
    **{name: partial(optim.step, name) for name in optim.STEPS},
    **{name: partial(model_step, name) for name in MODELS},
    **{f"{name}-rung5": partial(rung5_step, name) for name in ladder.COPIES},
    "import": import_time,
    "allocator": allocator_pair,
    "steady": steady_state,
    "peak-memory": peak_memory,
    "null-call": null_call,
}


def machine() -> dict:
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {"cpu": cpu, "threads": THREADS, "torch": torch.__version__}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which of: {', '.join(MEASURES)}")
    parser.add_argument("--write", action="store_true", help="record in results.json and the docs")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in MEASURES]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(MEASURES)}")
    torch.set_num_threads(THREADS)
    import torch_npu  # noqa: F401

    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"results": {}}
    results = dict(known["results"])
    for name in options.names or MEASURES:
        results[name] = MEASURES[name]()
        print(f"{name:12} {table.show(name, results[name])}", flush=True)
    missed = [
        bar.name
        for bar in bars.BARS
        if bar.name in results and results[bar.name]["low"] > bar.limit
    ]
    print(f"{len(missed)} bars missed: {', '.join(missed)}" if missed else "every bar met")
    if options.write:
        RESULTS.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + "\n")
        table.write(bars.BARS, bars.WATCHED, json.loads(RESULTS.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
