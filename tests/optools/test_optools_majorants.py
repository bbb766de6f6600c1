# SPDX-License-Identifier: Apache-2.0
"""E of elements that cancelled is the formula's, however the majorant was come by."""

import math

import pytest
import torch
from op_tools import _C

U = 2.0**-24


def judged(op, arguments, outputs):
    names = _C.operator_names()
    return _C.judge_call(names.index(op), arguments, outputs, {}, True)


def allowed(reference, majorant, terms):
    return 2 * U * abs(reference) + U * (8 * majorant + 1.5 * math.sqrt(terms) * abs(reference))


def with_error(result, at, by):
    wrong = result.clone()
    wrong[at] += by
    return wrong


PRODUCTS = {
    "aten::mm": ((64, 128), (128, 64), None),
    "aten::bmm": ((3, 32, 64), (3, 64, 48), None),
    "aten::addmm": ((64, 128), (128, 64), (64,)),
    "aten::baddbmm": ((3, 32, 64), (3, 64, 48), (3, 1, 48)),
}


@pytest.mark.parametrize("op", PRODUCTS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("factor", [0.5, 2, 5])
def test_a_product_that_cancelled(op, turned, factor):
    generator = torch.Generator().manual_seed(5)
    left, right, added = PRODUCTS[op]
    a = torch.randn(left, generator=generator)
    b = torch.randn(right, generator=generator)
    if turned:  # the same numbers, columns first
        b = b.mT.contiguous().mT
    given, alpha, beta = [a, b], 1.0, 1.0
    wide = a.double() @ b.double()
    terms = a.double().abs() @ b.double().abs()
    if added is not None:
        c, alpha, beta = torch.randn(added, generator=generator), -2.0, 3
        given = [c, a, b, beta, alpha]
        wide = beta * c.double() + alpha * wide
        terms = beta * c.double().abs() + abs(alpha) * terms
    flat = int(wide.abs().flatten().argmin())
    at = tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), wide.shape))
    room = allowed(wide[at].item(), terms[at].item(), max(a.shape + b.shape))
    got = wide.float()
    got[at] = wide[at] + factor * room
    error = abs(got[at].item() - wide[at].item()) / room
    found = judged(op, given, [got])
    (result,) = found["results"]
    assert found["verdict"] == {0.5: "pass", 2: "warn", 5: "error"}[factor]
    assert result["e"] == pytest.approx(error, rel=1e-4)
    assert result["worst"] == at


# The operator's own arguments, the function, its majorant.
SUMS = {
    "aten::add.Tensor": (
        lambda a, b, c: [a, b, -3],
        lambda a, b, alpha: a + alpha * b,
        lambda a, b, c: a.abs() + 3 * b.abs(),
    ),
    "aten::addcmul": (
        lambda a, b, c: [a, b, c, -0.7],
        lambda a, b, c, value: a + value * b * c,
        lambda a, b, c: a.abs() + 0.7 * (b * c).abs(),
    ),
    "aten::addcdiv": (
        lambda a, b, c: [a, b, c, -0.7],
        lambda a, b, c, value: a + value * b / c,
        lambda a, b, c: a.abs() + 0.7 * (b / c).abs(),
    ),
    "aten::lerp.Scalar": (
        lambda a, b, c: [a, b, 0.25],
        lambda a, b, weight: a + weight * (b - a),
        lambda a, b, c: 0.75 * a.abs() + 0.25 * b.abs(),
    ),
}


@pytest.mark.parametrize("op", SUMS)
@pytest.mark.parametrize("size", [40, 100_003])
def test_a_sum_that_cancelled(op, size):
    """Also in the last of many pieces."""
    arguments, function, majorant = SUMS[op]
    generator = torch.Generator().manual_seed(6)
    a, b, c = (torch.randn(size, generator=generator) + 2 for _ in range(3))

    def exact():
        values = arguments(a, b, c)
        return function(*(x.double() if isinstance(x, torch.Tensor) else x for x in values))

    at = size - 1
    a[at] -= exact()[at].item() / (0.75 if "lerp" in op else 1)  # only the roundoff is left
    given, wide = arguments(a, b, c), exact()
    room = allowed(wide[at].item(), majorant(a.double(), b.double(), c.double())[at].item(), 1)
    for factor, verdict in ((0.5, "pass"), (5, "error")):
        got = wide.float()
        got[at] = wide[at] + factor * room
        found = judged(op, given, [got])
        assert found["verdict"] == verdict
        if verdict == "error":
            assert found["results"][0]["e"] == pytest.approx(5, rel=0.01)
            assert found["results"][0]["worst"] == (at,)


def test_a_lerp_beyond_its_arguments_passes():
    generator = torch.Generator().manual_seed(7)
    a, b = (torch.randn(1000, generator=generator) for _ in range(2))
    for weight in (-3.0, 4.5):
        assert judged("aten::lerp.Scalar", [a, b, weight], [a.lerp(b, weight)])["verdict"] == "pass"


@pytest.mark.parametrize("masked", [False, True])
def test_attention_in_slices(masked):
    """Larger than what is judged at once: every head of every batch is looked at."""
    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    generator = torch.Generator().manual_seed(8)
    q, k, v = (torch.randn(2, 3, 256, 16, generator=generator) for _ in range(3))
    mask = torch.randn(2, 1, 256, 256, generator=generator) if masked else None
    out, sums = op(q, k, v, 0.0, not masked, attn_mask=mask)
    given = [q, k, v, 0.0, not masked, mask, None]
    name = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert judged(name, given, [out, sums])["verdict"] == "pass"
    for at in ((0, 0, 3, 1), (1, 2, 200, 5)):
        found = judged(name, given, [with_error(out, at, 1e-3), sums])
        assert found["verdict"] == "error"
        assert found["results"][found["worst"]]["worst"] == at


@pytest.mark.parametrize("size", [7, 511, 512, 1029, 70_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_one_pass_says_what_several_would(size, dtype):
    generator = torch.Generator().manual_seed(size)
    reference = torch.randn(size, generator=generator, dtype=torch.float64)
    got = (reference * (1 + 1e-2 * torch.randn(size, generator=generator).double())).to(dtype)
    apart = (got.double() - reference).abs()
    found = _C.judge(got, reference)
    assert found["max_abs_diff"] == apart.max().item()
    assert found["mean_abs_diff"] == pytest.approx(apart.mean().item(), rel=1e-9)
    assert found["max_relative_diff"] == pytest.approx((apart / reference.abs()).max().item())
    assert found["worst"] == (int((apart / reference.abs()).argmax()),)
    got[size // 2] = math.nan
    assert _C.judge(got, reference)["nan_differs"] == 1
