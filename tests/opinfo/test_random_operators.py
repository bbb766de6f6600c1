# SPDX-License-Identifier: Apache-2.0
"""The random operators draw from the law they name, the same numbers for the same seed."""

import math
import sys
from pathlib import Path

import pytest
import torch
import torch_npu  # noqa: F401

sys.path.insert(0, str(Path(__file__).resolve().parent))
from random_operators import LAWS

N = 20000
CASES = [(name, dtype) for name, law in LAWS.items() for dtype in law.dtypes]
IDS = [f"{name}-{str(dtype).removeprefix('torch.')}" for name, dtype in CASES]


def draw(name, dtype, seed=11, n=N):
    torch.npu.manual_seed(seed)
    return LAWS[name].draw(n, dtype, "npu").cpu()


def as_real(x):
    """Complex numbers: both parts, scaled to the law of a real one."""
    return torch.view_as_real(x).flatten() if x.is_complex() else x


def kolmogorov_smirnov(x, cdf):
    """The largest distance between the drawn and the true law, in units of its 0.1 % bound.

    Numbers are rounded to their dtype, so each stands for the interval around it.
    """
    step = torch.finfo(x.dtype).eps
    values, counts = x.double().sort()[0].unique_consecutive(return_counts=True)
    upto = counts.cumsum(0) / x.numel()
    before = upto - counts / x.numel()
    room = values.abs() * step + 2.0**-24
    above = (upto - cdf(values + room)).max().item()
    below = (cdf(values - room) - before).max().item()
    return max(above, below) * math.sqrt(x.numel()) / 1.95


def chi_square(x, chances):
    """Its value in units of the 0.1 % bound; rare values are counted together."""
    n, total, cells, rest, rest_p = x.numel(), 0.0, 0, x.numel(), 1.0
    for value, p in chances.items():
        found = int((x == value).sum())
        if p * n < 20:
            continue
        total += (found - p * n) ** 2 / (p * n)
        cells, rest, rest_p = cells + 1, rest - found, rest_p - p
    if rest_p * n >= 20:
        total += (rest - rest_p * n) ** 2 / (rest_p * n)
        cells += 1
    else:
        assert rest <= 20 + 10 * max(0.0, rest_p) * n, f"{rest} values that are not in the law"
    free = cells - 1
    bound = free * (1 - 2 / (9 * free) + 3.09 * math.sqrt(2 / (9 * free))) ** 3
    return total / bound


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=IDS)
def test_the_law(name, dtype):
    law, x = LAWS[name], draw(name, dtype)
    assert x.numel() == N
    if law.chances:
        assert chi_square(x, law.chances(dtype)) <= 1
        return
    cdf = law.cdf
    if x.is_complex() and name.startswith("randn"):
        cdf = lambda v: law.cdf(v * math.sqrt(2))  # noqa: E731
    assert kolmogorov_smirnov(as_real(x), cdf) <= 1


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=IDS)
def test_the_seed_decides(name, dtype):
    first = draw(name, dtype, n=300)
    assert first.equal(draw(name, dtype, n=300))
    assert not first.equal(draw(name, dtype, seed=12, n=300))


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=IDS)
def test_neighbours_are_independent(name, dtype):
    """The correlation of each number with the next is as small as chance makes it."""
    x = as_real(draw(name, dtype)).double()
    low, high = x.quantile(torch.tensor([0.02, 0.98], dtype=torch.float64))
    x = x.clamp(low, high)  # Cauchy has no variance
    x = (x - x.mean()) / x.std()
    assert abs((x[:-1] * x[1:]).mean().item()) < 4 / math.sqrt(x.numel())


def test_threads_make_no_difference():
    before = torch.get_num_threads()
    try:
        for name, dtype in CASES:
            torch.set_num_threads(1)
            one = draw(name, dtype, n=100_000)
            torch.set_num_threads(2)
            assert one.equal(draw(name, dtype, n=100_000)), (name, dtype)
    finally:
        torch.set_num_threads(before)


def test_the_tests_would_notice():
    """Laws that are a little off fail."""
    g = torch.Generator().manual_seed(3)
    normal = torch.randn(N, generator=g)
    cdf = LAWS["randn"].cdf
    assert kolmogorov_smirnov(normal, cdf) <= 1
    assert kolmogorov_smirnov(normal * 1.06, cdf) > 1
    assert kolmogorov_smirnov(normal + 0.04, cdf) > 1
    kept = torch.rand(N, generator=g).lt(0.75).float()
    assert chi_square(kept, {0.0: 0.25, 1.0: 0.75}) <= 1
    assert chi_square(kept, {0.0: 0.27, 1.0: 0.73}) > 1
    with pytest.raises(AssertionError, match="not in the law"):
        chi_square(kept + 0.5, {0.0: 0.25, 1.0: 0.75})


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_fractional_pools_draw_uniform_samples(dims, dtype):
    pool = getattr(torch.nn.functional, f"fractional_max_pool{dims}d")
    x = torch.randn((2, 3) + (9,) * dims).to(dtype)
    torch.npu.manual_seed(5)
    got = pool(x.npu(), 2, output_size=(4,) * dims)
    torch.npu.manual_seed(5)
    samples = torch.rand(2, 3, dims, dtype=dtype, device="npu")
    assert 0.2 < samples.double().mean().item() < 0.8
    expected = pool(x, 2, output_size=(4,) * dims, _random_samples=samples.cpu())
    assert got.cpu().equal(expected)


@pytest.mark.parametrize("name", ["svd_lowrank", "pca_lowrank"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
def test_low_rank_factors(name, dtype):
    g = torch.Generator().manual_seed(1)
    a = torch.randn(12, 3, dtype=dtype, generator=g) @ torch.randn(3, 8, dtype=dtype, generator=g)
    if name == "svd_lowrank":
        u, s, v = torch.svd_lowrank(a.npu(), q=3)
    else:
        u, s, v = torch.pca_lowrank(a.npu(), q=3, center=False)
    again = (u * s) @ v.mH
    torch.testing.assert_close(again.cpu(), a, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_multi_head_attention_drops_and_keeps_the_mean(dtype):
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(8, 2, dropout=0.5).to(dtype)
    x = torch.randn(5, 400, 8).to(dtype)
    layer.eval()
    expected = layer(x, x, x)[0].double()
    layer.npu().train()
    torch.npu.manual_seed(1)
    got = sum(layer(x.npu(), x.npu(), x.npu())[0].cpu().double() for _ in range(16)) / 16
    spread = (got - expected).std() / math.sqrt(got.numel())
    assert abs((got - expected).mean()) < 6 * spread
    torch.npu.manual_seed(1)
    again = layer(x.npu(), x.npu(), x.npu())[0]
    torch.npu.manual_seed(1)
    assert layer(x.npu(), x.npu(), x.npu())[0].equal(again)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_attention_drops_and_keeps_the_mean(dtype):
    attend = torch.nn.functional.scaled_dot_product_attention
    q, k = (torch.randn(4, 8, 40, 16).to(dtype).npu() for _ in range(2))
    v = torch.ones(4, 8, 40, 16, dtype=dtype, device="npu")
    torch.npu.manual_seed(1)
    got = attend(q, k, v, dropout_p=0.5)
    # Rows of weights sum to 1 before some are dropped and the others doubled.
    sums = got[..., 0].cpu().double()
    assert sums.std() > 0.1
    assert abs(sums.mean() - 1) < 6 * sums.std() / math.sqrt(sums.numel())
    torch.npu.manual_seed(1)
    assert attend(q, k, v, dropout_p=0.5).equal(got)
    assert not attend(q, k, v, dropout_p=0.5).equal(got)
