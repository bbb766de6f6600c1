# SPDX-License-Identifier: Apache-2.0
"""Answers in float64 that the CPU's cannot judge, against rational numbers.

The OpInfo sweep's reference is the CPU in float64. Where the CPU itself loses digits there, and
expected.yaml says so, this says that the host driver's kernel does not.
"""

import pytest

pytestmark = pytest.mark.machines

BICUBIC = """
import math
from fractions import Fraction
import torch, torch_npu
from torch_npu import _C

A = Fraction(-3, 4)

def weight(x):
    x = abs(x)
    if x < 1:
        return (A + 2) * x**3 - (A + 3) * x**2 + 1
    return A * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else Fraction(0)

def rounded(x):
    return Fraction(float(x))

def taps(size, wanted, align):
    # A place is a float64: the ratio is rounded, and the place once.
    found = []
    for i in range(wanted):
        if align:
            place = rounded(rounded(Fraction(size - 1, wanted - 1)) * i)
        else:
            place = rounded(rounded(Fraction(size, wanted)) * (i + Fraction(1, 2)) - Fraction(1, 2))
        low = math.floor(place)
        found.append([(min(max(low + k, 0), size - 1), weight(place - low - k)) for k in range(-1, 3)])
    return found

def off(got, terms):
    # In roundoffs of the sum of the terms' magnitudes.
    large = sum(abs(t) for t in terms)
    return float(abs(Fraction(got) - sum(terms)) / large * 2**53) if large else abs(got)

torch.manual_seed(0)
worst = 0
for (h, w), (oh, ow), align in [
    ((4, 4), (5, 5), False), ((4, 5), (3, 4), False), ((6, 5), (9, 14), True), ((7, 11), (20, 9), False),
]:
    x = torch.randn(1, 1, h, w, dtype=torch.float64)
    seed = torch.randn(1, 1, oh, ow, dtype=torch.float64)
    leaf = x.npu().requires_grad_()
    got = torch.nn.functional.interpolate(leaf, (oh, ow), mode="bicubic", align_corners=align)
    got.backward(seed.npu())
    out, grad = got.detach().cpu()[0, 0].tolist(), leaf.grad.cpu()[0, 0].tolist()
    x, seed = x[0, 0].tolist(), seed[0, 0].tolist()
    back = {}
    for i, rows in enumerate(taps(h, oh, align)):
        for j, columns in enumerate(taps(w, ow, align)):
            reads = [(y, z, a * b) for y, a in rows for z, b in columns]
            worst = max(worst, off(out[i][j], [Fraction(x[y][z]) * c for y, z, c in reads]))
            for y, z, c in reads:
                back.setdefault((y, z), []).append(Fraction(seed[i][j]) * c)
    for (y, z), terms in back.items():
        worst = max(worst, off(grad[y][z], terms))
calls = _C._native_calls()
assert any(row[1] for row in calls["aten::upsample_bicubic2d"]), calls
assert any(row[1] for row in calls["aten::upsample_bicubic2d_backward"]), calls
print(worst)
"""


def test_bicubic_weights_do_not_cancel(run_python):
    worst = float(run_python(BICUBIC, NPU_HOST_KERNELS="all").stdout)
    assert worst < 8


IGAMMA = """
import torch, torch_npu
# a, x and the lower incomplete gamma function, summed with 40 digits.
ROWS = [
    (110000.0, 110000.0, 0.500400952098158878),
    (110000.0, 110500.0, 0.934002760818113735),
    (110000.0, 109000.0, 0.00125019965574377561),
    (200000.0, 201000.0, 0.987228728290627781),
    (200000.0, 198000.0, 3.62209517705604501e-6),
    (100001.0, 97000.0, 4.59971917489617349e-22),
]
a, x, want = torch.tensor(ROWS, dtype=torch.float64).unbind(1)
got = torch.igamma(a.npu(), x.npu()).cpu()
upper = torch.igammac(a.npu(), x.npu()).cpu()
assert (abs(got - want) <= 4 * 2.0**-53 * want).all(), got
assert (abs(upper - (1 - want)) <= 2.0**-50).all(), upper
# Where a sum would never end: half, with a correction that float32 does not see.
huge = torch.tensor([1e20, 1e30, 3e38]).npu()
assert torch.igamma(huge, huge).tolist() == [0.5] * 3
assert torch.igamma(huge, huge / 2).tolist() == [0.0] * 3
assert torch.igammac(huge, torch.full_like(huge, 501)).tolist() == [1.0] * 3
"""


def test_incomplete_gamma_of_large_numbers(run_python):
    run_python(IGAMMA, NPU_HOST_KERNELS="all")


NEAR_ONE = """
from decimal import Decimal, getcontext
import torch, torch_npu
getcontext().prec = 50
rows = [[4.7523, -6.8127, -2.4511], [9.0, -1.0, 0.5], [30.0, 0.0, -3.0]]
for dtype, roundoff in ((torch.float64, Decimal(2) ** -53), (torch.float32, Decimal(2) ** -24)):
    x = torch.tensor(rows, dtype=dtype)
    y = x.npu().requires_grad_()
    target = torch.zeros(3, dtype=torch.int64).npu()
    losses = torch.nn.functional.cross_entropy(y, target, reduction="none")
    losses.sum().backward()
    for row, loss, grads in zip(x.tolist(), losses.tolist(), y.grad.cpu().tolist()):
        terms = [Decimal(v).exp() for v in row]
        exact = -(terms[0] / sum(terms)).ln()
        assert abs(Decimal(loss) - exact) <= 2 * roundoff * exact + Decimal(2) ** -52, (row, loss, exact)
        # The kind keeps the row's logarithm in the dtype; p can be no better than that.
        allowed = (1 + sum(terms).ln()) * roundoff
        for i, (term, grad) in enumerate(zip(terms, grads)):
            exact = term / sum(terms) - (i == 0)
            assert abs(Decimal(grad) - exact) <= allowed, (dtype, row, i, grad, exact)
"""


def test_gradient_of_a_sure_guess(run_python):
    run_python(NEAR_ONE, NPU_HOST_KERNELS="all")


LOG_ADD_EXP = """
import math, torch, torch_npu
inf, nan = math.inf, math.nan
x = torch.tensor([complex(inf, inf), complex(-inf, inf), complex(1, nan)])
y = torch.tensor([complex(-inf, nan), complex(-inf, -inf), complex(5, 0)])
got = torch.logaddexp(x.npu(), y.npu()).cpu()
want = torch.logaddexp(x, y)
torch.testing.assert_close(got, want, equal_nan=True)
# Where 1 + exp(low - high) is near 1, small parts stay.
x = torch.tensor([complex(0, -0.001), complex(0, 0.001)])
y = torch.tensor([complex(-3.1415927, -1.5707964), complex(-3.141582, -0.001)])
exact = torch.logaddexp(x.to(torch.complex128), y.to(torch.complex128))
off = (torch.logaddexp(x.npu(), y.npu()).cpu() - exact) / exact.abs()
assert off.abs().max() < 4e-7, off
"""


def test_complex_logaddexp(run_python):
    run_python(LOG_ADD_EXP, NPU_HOST_KERNELS="all")


FLAT = """
import torch, torch_npu
from torch_npu import _C

def gradients(image, grid):
    image, grid = image.requires_grad_(), grid.requires_grad_()
    out = torch.grid_sampler_2d(image, grid, 2, 1, False)
    return torch.autograd.grad(out, (image, grid), torch.ones_like(out))

torch.manual_seed(0)
image, grid = torch.randn(2, 3, 5, 20), torch.rand(2, 13, 10, 2) * 4 - 2
wide = gradients(image.double(), grid.double())
here = gradients(image.double().npu(), grid.double().npu())
assert all(g.cpu().equal(w) for g, w in zip(here, wide))
for got, want in zip(gradients(image.npu(), grid.npu()), wide):
    torch.testing.assert_close(got.cpu().double(), want, rtol=1e-4, atol=1e-4)
assert any(row[1] for row in _C._native_calls()["aten::grid_sampler_2d_backward"])
"""


def test_gradient_beyond_a_bicubic_border(run_python):
    """It is zero there, but for rounding: float64's is the CPU's, narrower ones are summed wider."""
    run_python(FLAT, NPU_HOST_KERNELS="all")
