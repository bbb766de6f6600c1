# SPDX-License-Identifier: Apache-2.0
"""Programs that spend their time in the CPU rungs, on npu against the same on the CPU.

python -m benchmarks.ladder            rung 4: many small calls (stack, one-token, generate)
python -m benchmarks.ladder --copies   rung 5: GPT training steps where host code cannot read the device
python -m benchmarks.ladder --copies --all   the same with no kernel but copy and fill: every operator takes rung 5

--clock cpu    processor time of this process instead of the wall clock, for a busy machine
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from benchmarks import measure, models, operators

KINDS = Path(__file__).parent.parent / "ops/kinds.yaml"
COPIES = ("gpt-tiny", "gpt-small", "gpt-medium")


def rung5_environment(every_operator: bool) -> dict[str, str]:
    """The host driver as one whose memory host code cannot read."""
    kinds = re.findall(r"^  - kind: (\w+)", KINDS.read_text(), re.MULTILINE)
    off = [kind for kind in kinds if kind not in ("copy", "fill")] if every_operator else []
    return {"NPU_HOST_ACCESS": "none", "NPU_DISABLE_KIND": ",".join(off)}


def _stack(device: str) -> Callable[[], object]:
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(20))).to(device)
    x = torch.ones(4, 16).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def _gpt(device: str) -> models.GPT:
    torch.manual_seed(1)
    return models.GPT(layers=4, width=64, context=32).to(device).eval()


def _one_token(device: str) -> Callable[[], object]:
    model, token = _gpt(device), torch.zeros(1, 1, dtype=torch.int64).to(device)
    return torch.no_grad()(lambda: model(token))


def _generate(device: str) -> Callable[[], object]:
    model = _gpt(device)

    @torch.no_grad()
    def generate() -> torch.Tensor:
        tokens = torch.zeros(1, 1, dtype=torch.int64).to(device)
        for _ in range(16):
            best = model(tokens)[:, -1].argmax(-1, keepdim=True)
            tokens = torch.cat((tokens, best), 1)
        return tokens

    return generate


SMALL_CALLS = {"stack": _stack, "one-token": _one_token, "generate": _generate}


def small_calls(name: str) -> dict:
    return operators.compare(SMALL_CALLS[name], operators.PAIRS, 1 if name == "generate" else 4)


def _show(name: str, make: Callable[[str], Callable[[], object]], count: int, repeat: int) -> None:
    ours, theirs = make("npu"), make("cpu")
    for fn in (ours, theirs):
        measure.timed(fn, 20 if repeat > 1 else 3)
    print(f"{name:12} {measure.pairs(ours, theirs, count, repeat)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--copies", action="store_true", help="rung 5 instead of rung 4")
    parser.add_argument(
        "--all", action="store_true", help="with --copies: no kernels of the driver"
    )
    parser.add_argument("--models", nargs="*", default=COPIES, help="with --copies: which")
    parser.add_argument("--clock", choices=measure.CLOCKS, default="wall")
    parser.add_argument("--pairs", type=int, default=40, help="how often each is timed")
    given = parser.parse_args()
    measure.use_clock(given.clock)
    if given.copies:
        os.environ.update(rung5_environment(given.all))  # read when the device is first used
    import torch_npu  # noqa: F401

    if given.copies:
        for name in given.models:
            _show(name, lambda device, name=name: models.build(name).to(device), given.pairs, 1)
    else:
        for name, make in SMALL_CALLS.items():
            _show(name, make, given.pairs, 5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
