# SPDX-License-Identifier: Apache-2.0
"""Operators of rotation round halves once: their error is half a unit in the last place of the result."""

import pytest
import torch
import torch_npu

UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}


def rotated(x, cos, sin, interleaved):
    """float64, from the formula: o1 = x1 cos - x2 sin, o2 = x2 cos + x1 sin."""
    x, cos, sin = x.double(), cos.double(), sin.double()
    half = x.shape[-1] // 2
    a, b = (x[..., ::2], x[..., 1::2]) if interleaved else (x[..., :half], x[..., half:])
    turned = torch.stack((-b, a), -1).flatten(-2) if interleaved else torch.cat((-b, a), -1)
    return x * cos + turned * sin


def made(dtype, seed=0):
    draw = torch.Generator().manual_seed(seed)
    x, cos, sin = (torch.randn(2, 5, n, 64, generator=draw).to(dtype) for n in (3, 1, 1))
    return x, cos, sin


def worst(found, wanted, dtype):
    floor = torch.finfo(dtype).tiny / UNIT[dtype]  # below it results are subnormal
    return ((found.cpu().double() - wanted).abs() / wanted.abs().clamp(min=floor)).max() / UNIT[
        dtype
    ]


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_mul(dtype, interleaved):
    x, cos, sin = made(dtype)
    mode = "interleave" if interleaved else "half"
    found = torch_npu.npu_rotary_mul(x.npu(), cos.npu(), sin.npu(), mode)
    assert worst(found, rotated(x, cos, sin, interleaved), dtype) <= 1


@pytest.mark.parametrize("dtype", UNIT)
def test_apply_rotary_pos_emb(dtype):
    x, cos, sin = made(dtype)
    for found in torch_npu.npu_apply_rotary_pos_emb(x.npu(), x.npu(), cos.npu(), sin.npu()):
        assert worst(found, rotated(x, cos, sin, False), dtype) <= 1


@pytest.mark.parametrize("dtype", UNIT)
def test_interleave_rope(dtype):
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(2, 3, 1, 64, generator=draw).to(dtype)
    cos, sin = (torch.randn(2, 1, 1, 64, generator=draw).to(dtype) for _ in range(2))
    found = torch_npu.npu_interleave_rope(x.npu(), cos.npu(), sin.npu())
    apart = torch.cat((x[..., ::2], x[..., 1::2]), -1)
    assert worst(found, rotated(apart, cos, sin, False), dtype) <= 1


@pytest.mark.parametrize("dtype", UNIT)
@pytest.mark.parametrize("mode", ["half", "interleaved"])
@pytest.mark.parametrize("sections", [None, [8, 12, 12], [8, 8, 8, 8]])
def test_mrope(dtype, mode, sections):
    draw = torch.Generator().manual_seed(2)
    q, k = (torch.randn(8, n * 96, generator=draw).to(dtype) for n in (4, 2))
    cache = torch.randn(10, 64, generator=draw).to(dtype)
    rows = (len(sections),) if sections else ()
    positions = torch.randint(0, 10, (*rows, 8), generator=draw)
    cos, sin = cache[positions].chunk(2, -1)
    if sections:
        cos, sin = (
            torch.cat([part[i] for i, part in enumerate(x.split(sections, -1))], -1)
            for x in (cos, sin)
        )
    if mode == "half":
        cos, sin = (torch.cat((x, x), -1)[:, None] for x in (cos, sin))
    else:
        cos, sin = (x.repeat_interleave(2, -1)[:, None] for x in (cos, sin))
    found = torch_npu.npu_mrope(
        positions.npu(), q.npu(), k.npu(), cache.npu(), 96, mrope_section=sections, rotary_mode=mode
    )
    for x, y in zip((q, k), found, strict=True):
        heads, made = x.view(8, -1, 96), y.cpu().view(8, -1, 96)
        wanted = rotated(heads[..., :64], cos, sin, mode != "half")
        assert worst(made[..., :64], wanted, dtype) <= 1
        assert torch.equal(made[..., 64:], heads[..., 64:])


def test_mrope_refuses_sections_that_do_not_fit():
    given = (torch.zeros(4, 32).npu(), torch.zeros(4, 16).npu(), torch.zeros(10, 12).npu(), 16)
    with pytest.raises(RuntimeError, match="rotary_mode is quarter; allowed: half, interleaved"):
        torch_npu.npu_mrope(torch.zeros(4, dtype=torch.int64).npu(), *given, rotary_mode="quarter")
    positions = torch.zeros(3, 4, dtype=torch.int64).npu()
    with pytest.raises(RuntimeError, match="a section for each row is needed"):
        torch_npu.npu_mrope(positions, *given, mrope_section=[3, 3])
