# SPDX-License-Identifier: Apache-2.0
"""Verdict E: correct kernels pass, broken ones do not, whatever cosine says of them."""

import math

import pytest
import torch
from faults import one_row_off, sums_in_bf16, tf32
from op_tools.verdict import judge, worse

K = 1024


@pytest.fixture(scope="module")
def product():
    generator = torch.Generator().manual_seed(7)
    a = torch.randn(64, K, generator=generator)
    b = torch.randn(K, 64, generator=generator)
    reference = a.double() @ b.double()
    return a, b, reference, a.double().abs() @ b.double().abs()


def of(product, got, **options):
    return judge(got, product[2], majorant=product[3], terms=K, **options)


def one_zero(a, b):
    result = a @ b
    result[5, 6] = 0
    return result


@pytest.mark.parametrize(
    "broken",
    [
        lambda a, b: tf32(a) @ tf32(b),
        lambda a, b: a.bfloat16().float() @ b.bfloat16().float(),
        lambda a, b: a[:, :-1] @ b[:-1],
        sums_in_bf16,
        one_row_off,
        one_zero,
    ],
    ids=["tf32", "bf16 inputs", "last k", "bf16 sums", "one row", "one zero"],
)
def test_broken_products_are_errors(product, broken):
    verdict = of(product, broken(*product[:2]))
    assert verdict["verdict"] == "error", verdict
    assert verdict["e"] > 3
    assert verdict["cosine_similarity"] > 0.99  # which is why it is not cosine that decides


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_right_products_pass(product, dtype):
    a, b = (t.to(dtype) for t in product[:2])
    reference, bound = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    got = (a.float() @ b.float()).to(dtype)
    verdict = judge(got, reference, majorant=bound, terms=K)
    assert verdict["verdict"] == "pass" and 0 < verdict["e"] < 0.8


def test_the_worst_element_is_named(product):
    verdict = of(product, one_zero(*product[:2]))
    assert verdict["worst"] == (5, 6)
    assert verdict["got"] == 0 and verdict["expected"] == product[2][5, 6].item()


def test_strides_do_not_matter(product):
    got = one_zero(*product[:2])
    turned = got.t().contiguous().t()
    assert of(product, turned) == of(product, got)


def test_warn_lies_between_pass_and_error():
    reference = torch.ones(5000, dtype=torch.float64)
    unit = 2 * 2.0**-24 + 2.0**-24 * 9.5

    def at(e, count=1):
        got = reference.clone()
        got[:count] += e * unit
        return judge(got.float(), reference)["verdict"]

    assert [at(e) for e in (0.0, 0.9, 2.0, 3.5)] == ["pass", "pass", "warn", "error"]
    assert at(2.0, count=5) == "warn" and at(2.0, count=6) == "error"  # 0.1 % is 5


def test_integers_are_exact():
    a = torch.tensor([1, 2**62, -3])
    assert judge(a, a)["verdict"] == "pass"
    verdict = judge(a + torch.tensor([0, 1, 0]), a)
    assert verdict["verdict"] == "error" and verdict["worst"] == (1,) and verdict["over"] == 1
    assert judge(torch.tensor([True]), torch.tensor([False]))["verdict"] == "error"
    difference = judge(torch.tensor([0], dtype=torch.uint8), torch.tensor([1], dtype=torch.uint8))
    assert difference["max_abs_diff"] == 1  # and not 255


def test_nan_and_infinity_have_to_be_where_the_reference_has_them():
    reference = torch.tensor([math.nan, math.inf, -math.inf, 1.0], dtype=torch.float64)
    assert judge(reference.float(), reference)["verdict"] == "pass"
    for place, value in ((0, 1.0), (1, -math.inf), (2, 1.0), (3, math.nan), (3, math.inf)):
        got = reference.float()
        got[place] = value
        assert judge(got, reference)["verdict"] == "error", (place, value)


def test_beyond_the_range_is_overflow_and_not_a_mismatch():
    reference = torch.tensor([1.0, 1e6, -1e6], dtype=torch.float64)
    verdict = judge(reference.half(), reference)
    assert verdict["verdict"] == "overflow" and "2 of 3" in verdict["reason"]
    assert judge(torch.tensor([1.0, -math.inf, -math.inf]).half(), reference)["verdict"] == "error"


def test_complex_numbers_by_modulus():
    reference = torch.randn(100, dtype=torch.complex128)
    assert judge(reference.to(torch.complex64), reference)["verdict"] == "pass"
    got = reference.to(torch.complex64)
    got[7] += 1e-4j * got[7].abs()
    verdict = judge(got, reference)
    assert verdict["verdict"] == "error" and verdict["worst"] == (7,)
    assert isinstance(verdict["got"], complex)


def test_empty_and_scalar():
    assert judge(torch.empty(0), torch.empty(0, dtype=torch.float64))["verdict"] == "pass"
    verdict = judge(torch.tensor(2.0), torch.tensor(1.0, dtype=torch.float64))
    assert verdict["verdict"] == "error" and verdict["worst"] == ()


def test_ditorchs_columns_use_the_results_own_dtype():
    reference = torch.ones(4, dtype=torch.float64)
    got = torch.full((4,), 1.00005)
    assert judge(got, reference)["allclose"] is False  # float32: 1e-5
    assert judge(got, reference, tolerance=(1e-3, 1e-3))["allclose"] is True
    verdict = judge(torch.zeros(4), reference * 0)
    assert verdict["cosine_similarity"] == 1 and verdict["allclose"] is True


def test_details_count_units_in_the_last_place():
    reference = torch.ones(2000, dtype=torch.float64)
    got = reference.float()
    got[0] = 1 + 3 * 2.0**-23
    details = judge(got, reference, details=True)["details"]
    assert details["max_ulp"] == 3 and details["p999_ulp"] == 0
    assert details["over_ulp"] == 1 / 2000


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_float8(dtype):
    reference = torch.linspace(-100, 100, 333, dtype=torch.float64)
    assert judge(reference.to(dtype), reference)["verdict"] == "pass"
    assert judge((reference * 1.5).to(dtype), reference)["verdict"] == "error"


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="same sizes"):
        judge(torch.ones(2), torch.ones(3))
    with pytest.raises(TypeError, match="reference has to be a tensor"):
        judge(torch.ones(2), 1.0)
    with pytest.raises(ValueError, match="sparse"):
        judge(torch.eye(2).to_sparse(), torch.eye(2))


def test_worse():
    assert worse("warn", "pass") == "warn" and worse("overflow", "error") == "error"
