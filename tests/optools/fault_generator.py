# SPDX-License-Identifier: Apache-2.0
"""Faults at random: an operator, which elements are wrong, and by how many units in the last place.

python tests/optools/fault_generator.py      # the table of docs/tools-reference.md
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MAGNITUDES = (1, 2, 8, 32, 128, 512, 2048, 8192, 65536)


def _numbers(*shape: int) -> Callable:
    return lambda g, dtype: torch.randn(shape, generator=g).to(dtype)


def _positive(*shape: int) -> Callable:
    return lambda g, dtype: torch.rand(shape, generator=g).add(0.1).to(dtype)


@dataclass(frozen=True)
class Target:
    family: str
    op: str  # as torch.library names it
    arguments: tuple

    @property
    def overload(self) -> torch._ops.OpOverload:
        base, _, overload = self.op.partition(".")
        return getattr(getattr(torch.ops.aten, base), overload or "default")


_X, _A = _numbers(20, 50), _numbers(24, 200)
TARGETS = (
    Target("elementwise", "exp", (_X,)),
    Target("elementwise", "tanh", (_X,)),
    Target("elementwise", "sigmoid", (_X,)),
    Target("elementwise", "silu", (_X,)),
    Target("elementwise", "mul.Tensor", (_X, _X)),
    Target("elementwise", "div.Tensor", (_X, _positive(20, 50))),
    Target("elementwise", "sqrt", (_positive(20, 50),)),
    Target("elementwise", "log", (_positive(20, 50),)),
    Target("sums", "add.Tensor", (_X, _X)),
    Target("sums", "sum.dim_IntList", (_A, [1])),
    Target("sums", "mean.dim", (_A, [1])),
    Target("sums", "cumsum", (_A, 1)),
    Target("products", "mm", (_A, _numbers(200, 16))),
    Target("products", "bmm", (_numbers(3, 8, 64), _numbers(3, 64, 8))),
    Target("products", "addmm", (_numbers(16), _A, _numbers(200, 16))),
    Target("normalisations", "_softmax", (_X, 1, False)),
    Target("normalisations", "_log_softmax", (_X, 1, False)),
    Target("normalisations", "native_layer_norm", (_X, [50], _numbers(50), _numbers(50), 1e-5)),
)

PATTERNS = {
    "one element": lambda n, r: [r.randrange(n)],
    "a few": lambda n, r: r.sample(range(n), max(1, n // 100)),
    "a row of 16": lambda n, r: list(range(at := r.randrange(max(1, n - 16)), min(n, at + 16))),
    "every 16th": lambda n, r: list(range(r.randrange(min(n, 16)), n, 16)),
    "the last tile": lambda n, r: list(range(n - min(n, 1 + n % 32), n)),
    "all": lambda n, r: list(range(n)),
}


@dataclass(frozen=True)
class Drawn:
    target: Target
    dtype: torch.dtype
    pattern: str
    ulp: float
    seed: int

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.target.op} {dtype} {self.pattern} {self.ulp:g} ulp"

    def arguments(self) -> list:
        g = torch.Generator().manual_seed(self.seed)
        return [a(g, self.dtype) if callable(a) else a for a in self.target.arguments]

    def wrong(self, result: torch.Tensor) -> torch.Tensor:
        """The result with its elements moved, up or down, all by so many units."""
        r = random.Random(self.seed)
        flat = result.contiguous().view(-1).clone()
        places = torch.tensor(PATTERNS[self.pattern](flat.numel(), r))
        digits = -math.log2(torch.finfo(self.dtype).eps)
        chosen = flat[places].double()
        unit = torch.exp2(torch.floor(torch.log2(chosen.abs().clamp(min=1e-30))) - digits)
        moved = chosen + unit * self.ulp * r.choice((-1, 1))
        flat[places] = moved.to(self.dtype)
        return flat.view(result.shape)

    def kernel(self, run: Callable) -> Callable:
        """A kernel: the right result from `run` in float64, rounded, then moved."""

        def wrong(*args: object) -> object:
            made = run(*(a.double() if isinstance(a, torch.Tensor) else a for a in args))
            made = list(made) if isinstance(made, tuple) else [made]
            made = [m.to(self.dtype) for m in made]
            made[0] = self.wrong(made[0])
            return tuple(made) if len(made) > 1 else made[0]

        return wrong


def draw(seed: int, magnitudes: tuple[float, ...] = MAGNITUDES) -> Drawn:
    r = random.Random(seed)
    return Drawn(
        r.choice(TARGETS), r.choice(DTYPES), r.choice(list(PATTERNS)), r.choice(magnitudes), seed
    )


def verdict(drawn: Drawn) -> str:
    """Of the judge itself, without a device."""
    from op_tools import _C

    args = drawn.arguments()
    made = drawn.kernel(drawn.target.overload)(*args)
    made = list(made) if isinstance(made, tuple) else [made]
    schema = drawn.target.overload._schema
    args += [a.default_value for a in schema.arguments[len(args) :]]
    number = _C.operator_names().index("aten::" + drawn.target.op)
    return _C.judge_call(number, args, made, {}, True)["verdict"]


def table(each: int = 60) -> list[tuple]:
    """(family, share not found by magnitude)."""
    rows = []
    for family in dict.fromkeys(target.family for target in TARGETS):
        targets = [target for target in TARGETS if target.family == family]
        shares = []
        for ulp in MAGNITUDES:
            r = random.Random(f"{family}{ulp}")
            drawn = [
                Drawn(r.choice(targets), r.choice(DTYPES), r.choice(list(PATTERNS)), ulp, seed)
                for seed in range(each)
            ]
            shares.append(sum(verdict(d) != "error" for d in drawn) / each)
        rows.append((family, shares))
    return rows


if __name__ == "__main__":
    print("| wrong by, in ulp | " + " | ".join(map(str, MAGNITUDES)) + " |")
    print("|---" * (len(MAGNITUDES) + 1) + "|")
    for name, found in table():
        print(f"| {name} | " + " | ".join(f"{100 * share:.0f} %" for share in found) + " |")
