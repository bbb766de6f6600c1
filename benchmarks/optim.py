# SPDX-License-Identifier: Apache-2.0
"""Optimizer steps on npu against the same on the CPU: 150 tensors, 9.6 million parameters.

python -m benchmarks.optim [name ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from benchmarks import measure

TENSORS, ELEMENTS = 150, 64_000
PAIRS = 15


def _params(device: str) -> list[torch.nn.Parameter]:
    generator = torch.Generator().manual_seed(4)
    params = []
    for _ in range(TENSORS):
        p = torch.nn.Parameter(torch.randn(ELEMENTS, generator=generator).to(device))
        p.grad = torch.randn(ELEMENTS, generator=generator).to(device)
        params.append(p)
    return params


def _step(make: Callable, **options) -> Callable[[str], Callable[[], object]]:
    return lambda device: make(_params(device), lr=1e-3, **options).step


def _clip(device: str) -> Callable[[], object]:
    params = _params(device)
    return lambda: torch.nn.utils.clip_grad_norm_(params, 1.0)


STEPS: dict[str, Callable[[str], Callable[[], object]]] = {
    "adamw-foreach": _step(torch.optim.AdamW, foreach=True),
    "adamw-fused": _step(torch.optim.AdamW, fused=True),
    "sgd-fused": _step(torch.optim.SGD, momentum=0.9, fused=True),
    "clip-grad-norm": _clip,
}


def step(name: str) -> dict:
    quiet, ratio = measure.against_cpu(STEPS[name], PAIRS)
    return {"aa": quiet.median, **vars(ratio)}


def main() -> int:
    torch.set_num_threads(2)
    import torch_npu  # noqa: F401

    for name in sys.argv[1:] or STEPS:
        quiet, ratio = measure.against_cpu(STEPS[name], PAIRS)
        print(f"{name:16} {ratio}  A/A {quiet.median:.3f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
