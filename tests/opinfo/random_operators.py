# SPDX-License-Identifier: Apache-2.0
"""What the random operators of the OpInfo database have to draw: a law for each.

LAWS maps a name of the database to its Law; test_random_operators.py tests every law for every
dtype the CPU draws in: continuous ones with Kolmogorov-Smirnov, discrete ones with chi-square.
OTHERS have tests of their own there.
"""

import dataclasses
import math
from collections.abc import Callable

import torch

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WITH_COMPLEX = (*FLOATS, torch.complex64, torch.complex128)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ALL = (*FLOATS, *INTEGERS)


@dataclasses.dataclass
class Law:
    """draw(n, dtype, device) gives n numbers that follow cdf, or chances {value: p}."""

    draw: Callable
    dtypes: tuple
    cdf: Callable | None = None
    chances: Callable | None = None


def empty(n, dtype, device):
    return torch.empty(n, dtype=dtype, device=device)


def ones(n, dtype, device):
    return torch.ones(n, dtype=dtype, device=device)


def normal_cdf(mean=0.0, deviation=1.0):
    return lambda x: 0.5 * torch.erfc((mean - x) / (deviation * math.sqrt(2)))


def uniform_cdf(low=0.0, high=1.0):
    return lambda x: ((x - low) / (high - low)).clamp(0, 1)


def log_normal_cdf(mean, deviation):
    return lambda x: normal_cdf(mean, deviation)(x.clamp_min(1e-300).log())


def cauchy_cdf(x):
    return 0.5 + torch.atan((x - 1) / 2) / math.pi


def evenly(low, high):
    return lambda dtype: {v: 1 / (high - low) for v in range(low, high)}


def geometric(p):
    return lambda dtype: {k: p * (1 - p) ** (k - 1) for k in range(1, 40)}


def dropped(p, kept, gone=0.0):
    def chances(dtype):
        there = [torch.tensor(v, dtype=torch.float64).to(dtype).item() for v in (gone, kept)]
        return {there[0]: p, there[1]: 1 - p}

    return chances


def alpha_values(p):
    """What alpha dropout makes of 1: kept or not, both moved so that moments stay."""
    alpha = 1.7580993408473766
    a = 1 / math.sqrt((alpha * alpha * p + 1) * (1 - p))
    gone = a * alpha * p - alpha * a
    return a + alpha * a * p, gone


def rows_of(function, dims):
    """One number per channel: the dropouts that drop whole channels."""

    def draw(n, dtype, device):
        x = torch.ones((1, n) + (2,) * dims, dtype=dtype, device=device)
        y = function(x)
        first = y.flatten(2)[0, :, 0]
        assert y.flatten(2).eq(first[None, :, None]).all(), "a channel is dropped as one"
        return first

    return draw


def multinomial(n, dtype, device):
    weights = torch.tensor([1.0, 2.0, 5.0, 0.0], dtype=dtype, device=device)
    return torch.multinomial(weights, n, replacement=True)


def rrelu(n, dtype, device):
    return torch.nn.functional.rrelu(-ones(n, dtype, device), 0.125, 0.5, training=True).neg()


functional = torch.nn.functional
P = 0.25
KEPT, GONE = alpha_values(P)

LAWS = {
    "uniform": Law(lambda *a: empty(*a).uniform_(-1, 3), FLOATS, uniform_cdf(-1, 3)),
    "normal.in_place": Law(lambda *a: empty(*a).normal_(2, 3), FLOATS, normal_cdf(2, 3)),
    "normal": Law(lambda *a: torch.normal(ones(*a), ones(*a) * 2), FLOATS, normal_cdf(1, 2)),
    "normal.number_mean": Law(lambda *a: torch.normal(1.0, ones(*a) * 2), FLOATS, normal_cdf(1, 2)),
    "randn": Law(lambda n, t, d: torch.randn(n, dtype=t, device=d), WITH_COMPLEX, normal_cdf()),
    "randn_like": Law(lambda *a: torch.randn_like(empty(*a)), WITH_COMPLEX, normal_cdf()),
    "rand_like": Law(lambda *a: torch.rand_like(empty(*a)), WITH_COMPLEX, uniform_cdf()),
    "cauchy": Law(lambda *a: empty(*a).cauchy_(1, 2), FLOATS, cauchy_cdf),
    "exponential": Law(
        lambda *a: empty(*a).exponential_(2), FLOATS, lambda x: -torch.expm1(-2 * x)
    ),
    "log_normal": Law(lambda *a: empty(*a).log_normal_(0, 0.5), FLOATS, log_normal_cdf(0, 0.5)),
    "geometric": Law(lambda *a: empty(*a).geometric_(P), ALL, chances=geometric(P)),
    "randint": Law(
        lambda n, t, d: torch.randint(3, 40, (n,), dtype=t, device=d), ALL, chances=evenly(3, 40)
    ),
    "randint_like": Law(
        lambda *a: torch.randint_like(empty(*a), 3, 40), ALL, chances=evenly(3, 40)
    ),
    "bernoulli": Law(lambda *a: torch.bernoulli(ones(*a) * P), FLOATS, chances=dropped(1 - P, 1.0)),
    "multinomial": Law(multinomial, FLOATS, chances=lambda dtype: {0: 1 / 8, 1: 2 / 8, 2: 5 / 8}),
    "nn.functional.dropout": Law(
        lambda *a: functional.dropout(ones(*a), P), FLOATS, chances=dropped(P, 1 / (1 - P))
    ),
    "nn.functional.dropout2d": Law(
        rows_of(lambda x: functional.dropout2d(x, P), 2), FLOATS, chances=dropped(P, 1 / (1 - P))
    ),
    "nn.functional.dropout3d": Law(
        rows_of(lambda x: functional.dropout3d(x, P), 3), FLOATS, chances=dropped(P, 1 / (1 - P))
    ),
    "nn.functional.alpha_dropout": Law(
        lambda *a: functional.alpha_dropout(ones(*a), P, training=True),
        FLOATS,
        chances=dropped(P, KEPT, GONE),
    ),
    "nn.functional.feature_alpha_dropout.with_train": Law(
        rows_of(lambda x: functional.feature_alpha_dropout(x, P, training=True), 2),
        FLOATS,
        chances=dropped(P, KEPT, GONE),
    ),
    "nn.functional.rrelu": Law(rrelu, FLOATS, uniform_cdf(0.125, 0.5)),
}

OTHERS = (
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
    "nn.functional.multi_head_attention_forward",
    "nn.functional.scaled_dot_product_attention",
    "pca_lowrank",
    "svd_lowrank",
)
COVERED = {*LAWS, *OTHERS}
