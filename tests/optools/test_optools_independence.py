# SPDX-License-Identifier: Apache-2.0
"""Random numbers that have the right distribution, and depend on each other, are an error."""

import op_tools
import pytest
import torch
from optools_helpers import kernel, quiet


def drawn(shape, **how):
    return torch.empty(shape).normal_(**how)


def every_value_twice(x):
    return drawn((x.numel() + 1) // 2).repeat_interleave(2)[: x.numel()].view(x.shape)


def equal_halves(x):
    return drawn((x.numel() + 1) // 2).repeat(2)[: x.numel()].view(x.shape)


def one_row(x):
    return drawn(x.shape[-1:]).expand(x.shape).contiguous()


def mirrored_halves(x):
    half = drawn((x.numel() + 1) // 2)
    return torch.cat([half, -half])[: x.numel()].view(x.shape)


def few_seeds(x):
    """Blocks of 333 numbers, of eight kinds, in any order."""
    blocks = torch.stack([drawn(333) for _ in range(8)])
    order = torch.randint(8, (x.numel() // 333 + 1,))
    return blocks[order].flatten()[: x.numel()].view(x.shape)


def walks(x):
    """Each a little of the one before."""
    noise = drawn(x.numel())
    return (noise * 0.9 + noise.roll(1) * (1 - 0.81) ** 0.5).view(x.shape)


def sorted_sample(x):
    return drawn(x.numel()).sort()[0].view(x.shape)


WRONG = [every_value_twice, equal_halves, one_row, mirrored_halves, few_seeds, walks, sorted_sample]


@pytest.mark.parametrize("fault", WRONG, ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("shape", [(6000,), (50, 120)], ids=str)
def test_normal_numbers_that_depend(accelerator, fault, shape):
    if fault is one_row and len(shape) == 1:
        pytest.skip("has one row")
    torch.manual_seed(0)

    def normal(x, mean=0.0, std=1.0, *, generator=None):
        return x.copy_(fault(x))

    tool = quiet(op_tools.OpAutoCompare())
    with kernel("normal_", normal, accelerator), tool:
        torch.empty(shape, device=accelerator).normal_()
    (error,) = tool.errors()
    assert error["op"] == "aten::normal_" and "not independent" in error["reason"]


def masks(change):
    def dropout(x, p, train):
        kept = change(torch.rand(x.shape).ge(p)).to(x.device)
        return x * kept / (1 - p), kept

    return dropout


@pytest.mark.parametrize(
    "change",
    [
        lambda kept: kept[:1].expand(kept.shape).contiguous(),
        lambda kept: torch.cat([kept[: len(kept) // 2]] * 2),
        lambda kept: kept[:, :1].expand(kept.shape).contiguous(),
    ],
    ids=["one mask for all rows", "halves alike", "whole rows"],
)
@pytest.mark.parametrize("p", [0.1, 0.5])
def test_masks_that_depend(accelerator, change, p):
    torch.manual_seed(0)
    tool = quiet(op_tools.OpAutoCompare())
    with kernel("native_dropout", masks(change), accelerator), tool:
        torch.nn.functional.dropout(torch.ones(400, 96, device=accelerator), p)
    (error,) = tool.errors()
    assert "not independent" in error["reason"] or "keeps" in error["reason"]


SOUND = {
    "normal_": lambda d, s: torch.empty(s, device=d).normal_(1, 3),
    "uniform_": lambda d, s: torch.empty(s, device=d).uniform_(-1, 3),
    "half normal_": lambda d, s: torch.empty(s, device=d, dtype=torch.bfloat16).normal_(),
    "exponential_": lambda d, s: torch.empty(s, device=d).exponential_(),
    "bernoulli_": lambda d, s: torch.empty(s, device=d).bernoulli_(0.02),
    "rare bernoulli_": lambda d, s: torch.empty(s, device=d).bernoulli_(1e-3),
    "randint": lambda d, s: torch.randint(0, 5, s, device=d),
    "geometric_": lambda d, s: torch.empty(s, device=d).geometric_(0.3),
    "dropout": lambda d, s: torch.nn.functional.dropout(torch.ones(s, device=d), 0.1),
    "randperm": lambda d, s: torch.randperm(s.numel() if hasattr(s, "numel") else 500, device=d),
    "bernoulli of its own": lambda d, s: torch.bernoulli(torch.rand(s, device=d).sort(-1)[0]),
    "normal of means": lambda d, s: torch.normal(torch.arange(500.0, device=d), 1.0),
}


@pytest.mark.parametrize("name", SOUND)
def test_sound_samples_pass(device, name):
    """Drawn with a fixed seed; the chance of a false alarm is below 10^-9 a call."""
    torch.manual_seed(11)
    tool = quiet(op_tools.OpAutoCompare())
    with tool:
        for shape in ((130,), (7, 200), (2, 30, 64), (30000,)):
            for _ in range(10):
                SOUND[name](device, shape)
    assert tool.findings() == []
