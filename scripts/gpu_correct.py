# SPDX-License-Identifier: Apache-2.0
"""Operators, graph mode and a training step on npu:0 against the CPU in float64. Prints what differs, exits with 1 for that."""

import sys

import torch
import torch.nn.functional as F
import torch_npu  # noqa: F401

HALVES = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 2e-5}


def operators(dtype):
    """Name, function and shapes; the arguments are drawn."""
    weight = [(64,), (64,)]
    yield "softmax", lambda x: F.softmax(x, -1), [(33, 1000)]
    yield "log_softmax of long rows", lambda x: F.log_softmax(x, -1), [(64, 50257)]
    yield "layer_norm", lambda x, w, b: F.layer_norm(x, (64,), w, b), [(300, 64), *weight]
    yield "sum of rows", lambda x: x.sum(-1), [(300, 1000)]
    yield "sum of columns", lambda x: x.sum(0), [(3000, 100)]
    yield (
        "rms norm in steps",
        lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
        [(64, 4096)],
    )
    yield "a chain", lambda x, y: ((x * 2 + y).relu() - y * x).sum(-1), [(512, 4096), (512, 4096)]
    yield "a chain of squares", lambda x, y: (x - y).square().mean(-1), [(512, 4096), (512, 4096)]
    yield "gelu", F.gelu, [(1000, 1000)]


def difference(got, want, scale):
    got = got.detach().double().cpu()
    return ((got - want).abs() / (want.abs() + scale)).max().item()


def judge(name, function, shapes, dtype, wrap):
    torch.manual_seed(0)
    drawn = [torch.randn(shape, dtype=dtype) for shape in shapes]
    wide = [x.double().requires_grad_() for x in drawn]
    device = [x.npu().requires_grad_() for x in drawn]
    want = function(*wide)
    got = wrap(function)(*device)
    gradient = torch.randn(want.shape, dtype=dtype)
    want.backward(gradient.double())
    got.backward(gradient.npu())
    worst = difference(got, want, 1.0)
    for mine, theirs in zip(device, wide):
        worst = max(worst, difference(mine.grad, theirs.grad, theirs.grad.abs().max().item() + 1.0))
    return worst


def main():
    wrong = 0
    modes = {
        "eager": lambda f: f,
        "graph": lambda f: torch.compile(f, backend="npu", dynamic=False),
    }
    for mode, wrap in modes.items():
        for dtype, bound in HALVES.items():
            for name, function, shapes in operators(dtype):
                torch._dynamo.reset()
                try:
                    worst = judge(name, function, shapes, dtype, wrap)
                except Exception as error:
                    worst = float("inf")
                    print(f"{mode} {name} {dtype}: {type(error).__name__}: {error}")
                if worst > bound:
                    wrong += 1
                    print(f"{mode} {name} {dtype}: off by {worst:.2g}, allowed {bound:.2g}")
    print(f"{wrong} wrong; below the twin ran:", torch.npu.fallback_report())
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
