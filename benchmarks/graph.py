# SPDX-License-Identifier: Apache-2.0
"""Graph mode: three sides in one run: CPU eager, CPU torch.compile (Inductor), npu graph mode.

    python -m benchmarks.graph [MODEL ...] [--no-inductor] [--clock cpu] [--pairs N] [--threads N]

Training steps, the optimizer included; one-token forward of GPT small; inference of the ResNet. A
bar is about the faster of the other two. First calls are printed beside it: ours, Inductor's, and
eager's. On a shared machine use one thread and the processor's clock: threads that wait for each
other count as busy.
"""

from __future__ import annotations

import argparse
import time
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
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(
    name: str, make: Callable[..., Callable[[], object]], count: int, inductor: bool
) -> None:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=[*MODELS, "one-token", "resnet"])
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--clock", choices=measure.CLOCKS, default="wall")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    measure.use_clock(options.clock)
    for name in options.models:
        if name in ("one-token", "resnet"):
            make = one_token if name == "one-token" else inference
        else:
            make = lambda device, backend=None, name=name: training(name, device, backend)  # noqa: E731
        compare(name, make, options.pairs, not options.no_inductor)


if __name__ == "__main__":
    main()
