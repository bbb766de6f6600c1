# SPDX-License-Identifier: Apache-2.0
"""The table of cases: an operator, arguments, and what its documents say it computes.

References are plain PyTorch or Python in float64 and call no npu operator.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable

import torch
import torch_npu  # noqa: F401

# The functions serve every device.
DEVICE = os.environ.get("NPU_OPS_TEST_DEVICE", "npu")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass
class Case:
    op: str
    label: str
    reference: Callable  # (*args in float64, **kwargs) -> a tensor or tuple; None: not compared
    args: tuple
    kwargs: dict
    grad: tuple[int, ...] = ()  # places of arguments whose gradient is compared
    dtypes: tuple = FLOATS
    fake: bool = True  # sizes can be traced without values
    keep: tuple[int, ...] = ()  # places of float arguments that keep their own dtype
    tolerance: float | None = None
    writes: tuple = ()  # places or names of arguments that operator and reference write into
    file: str = ""  # where the case is

    def __str__(self) -> str:
        return f"{self.op}-{self.label}" if self.label else self.op


CASES: list[Case] = []
_SEED = [0]


def add(
    op: str,
    reference,
    *args,
    label: str = "",
    grad=(),
    dtypes=FLOATS,
    fake=True,
    keep=(),
    tolerance=None,
    writes=(),
    **kwargs,
):
    file = sys._getframe(1).f_code.co_filename
    CASES.append(
        Case(op, label, reference, args, kwargs, grad, dtypes, fake, keep, tolerance, writes, file)
    )


def rand(*size, low=-2.0, high=2.0) -> torch.Tensor:
    """Numbers that float16 and bfloat16 hold exactly, so that one reference serves all dtypes."""
    _SEED[0] += 1
    generator = torch.Generator().manual_seed(_SEED[0])
    x = torch.rand(size, generator=generator, dtype=torch.float64) * (high - low) + low
    return torch.round(x * 32) / 32


def ints(low: int, high: int, *size, dtype=torch.int64) -> torch.Tensor:
    _SEED[0] += 1
    return torch.randint(low, high, size, generator=torch.Generator().manual_seed(_SEED[0])).to(
        dtype
    )


def int8(exact: torch.Tensor, low: int = -128) -> torch.Tensor:
    """Rounded and cut; the numbers before that are kept for `is_tie`."""
    out = torch.clamp(torch.round(exact), low, 127).to(torch.int8)
    out.exact = exact
    return out


def is_tie(exact: torch.Tensor) -> torch.Tensor:
    """Numbers that float32's arithmetic, a few roundings long, may put on either side of a half."""
    apart = (exact - torch.floor(exact) - 0.5).abs()
    return apart <= 32 * torch.finfo(torch.float32).eps * (1 + exact.abs())


def convert(value, dtype, device=DEVICE):
    """Float64 tensors, also in lists, in the dtype; all tensors on the device, as fresh copies."""
    if isinstance(value, torch.Tensor):
        target = dtype if value.dtype == torch.float64 else value.dtype
        return value.to(target).to(device, copy=True)
    if isinstance(value, (list, tuple)) and any(isinstance(v, torch.Tensor) for v in value):
        return [convert(v, dtype, device) for v in value]
    return value


def arguments(case: Case, dtype, device=DEVICE):
    args = [
        convert(a, torch.float32 if i in case.keep else dtype, device)
        for i, a in enumerate(case.args)
    ]
    return args, {k: convert(v, dtype, device) for k, v in case.kwargs.items()}


def plain(case: Case):
    """Arguments of the reference: fresh, on the CPU, in float64."""
    return arguments(case, torch.float64, "cpu")


def written(case: Case, args, kwargs) -> list:
    """The arguments that the case writes into."""
    return [args[place] if isinstance(place, int) else kwargs[place] for place in case.writes]


def flat(result) -> list:
    if result is None:
        return []
    if isinstance(result, (list, tuple)):
        return [x for r in result for x in (flat(r) if isinstance(r, (list, tuple)) else [r])]
    return [result]


def through(forward, places):
    """A backward operator's reference: autograd of a plain forward. Grad first, then inputs."""

    def call(grad, *inputs, **kwargs):
        leaves = [x.clone().requires_grad_() if i in places else x for i, x in enumerate(inputs)]
        out = forward(*leaves, **kwargs)
        grads = torch.autograd.grad(out, [leaves[i] for i in places], grad)
        return grads if len(places) > 1 else grads[0]

    return call
