# SPDX-License-Identifier: Apache-2.0
"""Elementwise operators of two dtypes give the CPU's bits, whatever the driver's kernels for one dtype do."""

import itertools

import pytest
import torch
from ladder import OWN_ROUNDING

pytestmark = [
    pytest.mark.modes,
    pytest.mark.skipif(OWN_ROUNDING, reason="the driver's own kernels round at other places"),
]

DTYPES = (
    torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32,
    torch.float64, torch.complex64, torch.complex128,
)  # fmt: skip
NAMES = (
    "add", "sub", "mul", "div", "pow", "atan2", "maximum", "fmin", "remainder", "copysign", "xlogy", "rsub",
    "eq", "lt", "ge", "logaddexp", "hypot", "floor_divide",
)  # fmt: skip


def values(dtype, seed, *sizes):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(sizes, dtype=torch.float64, generator=generator) * 3
    if dtype.is_complex:
        x = torch.complex(x, x.flip(0) if x.dim() else -x)
    return (x.abs() if dtype == torch.uint8 else x).to(dtype)


def bits(x):
    x = torch.view_as_real(x) if x.is_complex() else x
    return x.isnan(), x.nan_to_num(0) if x.is_floating_point() else x


def check(function, *tensors):
    try:
        expected = function(*tensors)
    except (RuntimeError, TypeError):
        return False  # not defined for these
    got = function(*(t.npu() for t in tensors)).cpu()
    assert got.dtype == expected.dtype
    where = [str(t.dtype) for t in tensors], [t.dim() for t in tensors]
    for one, other in zip(bits(expected), bits(got), strict=True):
        assert torch.equal(one, other), where
    return True


@pytest.mark.parametrize("name", NAMES)
def test_two_dtypes(name):
    function, defined = getattr(torch, name), 0
    for first, second in itertools.permutations(DTYPES, 2):
        for sizes in ([(300,), (300,)], [(300,), ()], [(), (300,)], [(2000,), ()]):
            x, y = (values(d, i, *size) for i, (d, size) in enumerate(zip((first, second), sizes)))
            defined += check(function, x, y)
    assert defined > 20


@pytest.mark.parametrize("name", ["addcmul", "addcdiv", "lerp", "where"])
def test_three_dtypes(name):
    def where(a, b, c):
        return torch.where(a.abs() > 1, b, c)

    function, defined = where if name == "where" else getattr(torch, name), 0
    some = (torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.complex64)
    for dtypes in itertools.product(some, repeat=3):
        tensors = [values(d, i, 100) for i, d in enumerate(dtypes)]
        defined += check(function, *tensors)
    assert defined


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_a_scale_is_not_rounded_to_the_half(half):
    """What a gradient scaler multiplies with: exact in float32, not in the half."""
    scale = torch.tensor(1 / 3)
    for n in (8, 5000):
        x = torch.full((n,), 3000.0, dtype=half)
        want = (x.double() * float(scale)).to(half)
        assert torch.equal((x.npu() * scale.npu()).cpu(), want)
        assert torch.equal(x.npu().mul_(scale.npu()).cpu(), want)
        assert torch.equal((x.npu() * scale).cpu(), want)  # a number of the host
