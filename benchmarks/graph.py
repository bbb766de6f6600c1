# SPDX-License-Identifier: Apache-2.0
"""Graph mode: three sides in one run: CPU eager, CPU torch.compile (Inductor), npu graph mode.

    python -m benchmarks.graph [MODEL ...] [--no-inductor] [--clock cpu] [--pairs N] [--threads N]
    python -m benchmarks.graph frame

Training steps, the optimizer included; one-token forward of GPT small; inference of the ResNet. A
bar is about the faster of the other two. First calls are printed beside it: ours, Inductor's, and
eager's; ours beyond what tracing alone takes (backend aot_eager), in eager calls; and peak memory of
eager mode and of graph mode on npu. `frame`: what the executor takes per frame, on the driver that
computes nothing. On a shared machine use one thread and the processor's clock: threads that wait for
each other count as busy.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable

import torch
import torch_npu  # noqa: F401
import torchair

from benchmarks import measure, models

MODELS = ("gpt-tiny", "gpt-small", "gpt-medium")
LIMITS = {
    "gpt-tiny": 0.7, "gpt-small": 0.9, "gpt-medium": 1.0, "one-token": 0.7, "resnet": 1.0,
}  # fmt: skip


def training(name: str, device: str, backend=None) -> Callable[[], object]:
    step = models.build(name).to(device)
    if backend is not None:
        step.case.loss = torch.compile(step.case.loss, backend=backend)
        step.optimizer.step = torch.compile(step.optimizer.step, backend=backend)
    return step


def one_token(device: str, backend=None) -> Callable[[], object]:
    step = models.build("gpt-small").to(device)
    model, tokens = step.model.eval(), step.batch[0][:1, :1]
    model = model if backend is None else torch.compile(model, backend=backend)

    def run():
        with torch.no_grad():
            return model(tokens)

    return run


def inference(device: str, backend=None) -> Callable[[], object]:
    step = models.build("resnet").to(device)
    model, images = step.model.eval(), step.batch[0]
    model = model if backend is None else torch.compile(model, backend=backend)

    def run():
        with torch.no_grad():
            return model(images)

    return run


def first_call(run: Callable[[], object]) -> float:
    """Seconds, by the clock of the pairs."""
    return measure.timed(run) / 1e6


def peak(run: Callable[[], object]) -> int:
    """Bytes that a call takes beyond what there was before it."""
    run()
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    run()
    return torch.npu.max_memory_allocated() - before


def beside(make: Callable[..., Callable[[], object]]) -> None:
    """Prints what a first call costs beyond tracing, and memory, against eager mode on npu."""
    eager, ours = make("npu"), make("npu", torchair.get_npu_backend())
    eager()
    traced = first_call(make("npu", "aot_eager"))
    more = first_call(ours) - traced
    once = min(first_call(eager) for _ in range(5))
    print(f"  first call beyond tracing: {more:.3f} s, {more / once:.1f} eager calls (bar 3)")
    ours()
    print(f"  peak memory: graph {peak(ours) / 2**20:.1f} MiB, eager {peak(eager) / 2**20:.1f} MiB")


def frame() -> None:
    """Nanoseconds per frame: chains of 250 and of 50 operators on 64 floats."""
    null = {"NPU_DRIVER": "null", "NPU_NULL_ACCEPT": "1"}
    if os.environ.get("NPU_DRIVER") != "null":
        again = [sys.executable, "-m", "benchmarks.graph", "frame"]
        sys.exit(subprocess.run(again, env={**os.environ, **null}).returncode)
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.empty(64, device="npu")

    def seconds(length: int) -> float:
        def chain(x):
            for _ in range(length):
                x = torch.sin(x)
            return x

        run = torchair.get_compiler()(make_fx(chain)(x), [x])
        rounds = [measure.timed(lambda: run([x]), 50) for _ in range(60)]
        assert run.replayer.counts()["frames"] == length
        return min(rounds)

    each = (seconds(250) - seconds(50)) / 200 * 1000
    print(
        f"frame: {each:.1f} ns on the null driver, bar 80 ns: {'met' if each <= 80 else 'missed'}"
    )


def compare(
    name: str, make: Callable[..., Callable[[], object]], count: int, inductor: bool
) -> None:
    torch._dynamo.reset()  # it compiles the same function for a few sides only
    sides = {"CPU eager": make("cpu"), "npu graph": make("npu", torchair.get_npu_backend())}
    again = make("cpu")
    if inductor:
        sides["CPU Inductor"] = make("cpu", "inductor")
    firsts = {side: first_call(run) for side, run in sides.items()}
    for run in (*sides.values(), again):
        for _ in range(5):
            run()
    print(f"{name}: first call " + ", ".join(f"{s} {t:.2f} s" for s, t in firsts.items()))
    quiet = measure.pairs(sides["CPU eager"], again, count)
    print(f"  A/A {quiet}")
    ours, found = sides.pop("npu graph"), {}
    for side, run in sides.items():
        found[side] = measure.pairs(ours, run, count)
        print(f"  against {side}: {found[side]}")
    limit, worst = LIMITS[name], max(found.values(), key=lambda ratio: ratio.median)
    print(f"  bar {limit}x of the faster: {'met' if worst.meets(limit) else 'missed'}")
    beside(make)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["frame", *MODELS, "one-token", "resnet"])
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--clock", choices=measure.CLOCKS, default="wall")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    measure.use_clock(options.clock)
    for name in options.models:
        if name == "frame":
            frame()
            continue
        if name in ("one-token", "resnet"):
            make = one_token if name == "one-token" else inference
        else:
            make = lambda device, backend=None, name=name: training(name, device, backend)  # noqa: E731
        compare(name, make, options.pairs, not options.no_inductor)


if __name__ == "__main__":
    main()
