# SPDX-License-Identifier: Apache-2.0
"""fp8, hifloat8, fp4, e8m0 and MX blocks against numbers worked out from the formats' definitions."""

import math

import pytest
import torch
from table import DEVICE, rand
from torch_npu.ops import _lowp as lowp

INF, NAN = math.inf, math.nan
FP4 = {lowp.E2M1: (0.0, 0.5, 1, 1.5, 2, 3, 4, 6), lowp.E1M2: tuple(i / 4 for i in range(8))}


def on_device(values):
    return torch.tensor(values, dtype=torch.float32, device=DEVICE)


@pytest.mark.parametrize(
    "code, value",
    [
        (0x00, 0.0), (0x01, 2.0**-22), (0x07, 2.0**-16), (0x08, 1.0), (0x0F, 1.875), (0x10, 2.0),
        (0x17, 3.75), (0x18, 0.5), (0x20, 4.0), (0x28, 8.0), (0x30, 0.25), (0x38, 0.125), (0x40, 16.0),
        (0x5C, 2.0**-7), (0x60, 2.0**8), (0x6E, 2.0**15), (0x6F, INF), (0x7E, 2.0**-15), (0x88, -1.0),
        (0xEF, -INF), (0x80, NAN),
    ],
)  # fmt: skip
def test_hifloat8_codes_hold_their_values(code, value):
    x = torch.tensor([code], dtype=torch.uint8, device=DEVICE)
    found = lowp.decode(x, lowp.HIF8)
    torch.testing.assert_close(found.cpu(), torch.tensor([value]), rtol=0, atol=0, equal_nan=True)


def test_hifloat8_encodes_what_it_decodes():
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE)
    again = lowp.encode(lowp.decode(codes, lowp.HIF8), lowp.HIF8, saturate=False)
    assert torch.equal(again, codes)


def test_hifloat8_rounds_half_away_from_zero():
    x = on_device(
        [1.0625, -1.0625, 1.05, 2.0**-23, 2.0**-24, 1.24 * 2**15, 1.25 * 2**15, -1e9, NAN]
    )
    open_ = lowp.encode(x, lowp.HIF8, saturate=False).tolist()
    assert open_ == [0x09, 0x89, 0x08, 0x01, 0x00, 0x6E, 0x6F, 0xEF, 0x80]
    assert lowp.encode(x, lowp.HIF8).tolist()[5:8] == [0x6E, 0x6E, 0xEE]


@pytest.mark.parametrize("kind", [lowp.E4M3, lowp.E5M2])
def test_fp8_saturates(kind):
    y = lowp.encode(on_device([1e6, -1e6, INF, 0.0, NAN]), kind)
    largest = torch.finfo(kind).max
    found = y.float().cpu()
    torch.testing.assert_close(
        found, torch.tensor([largest, -largest, largest, 0, NAN]), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("kind", FP4)
def test_fp4_codes_hold_their_values(kind):
    packed = torch.tensor([lo | (lo + 1) << 4 for lo in range(0, 16, 2)], dtype=torch.uint8)
    values = [*FP4[kind], *(-v for v in FP4[kind])]
    assert lowp.decode(packed.to(DEVICE), kind).tolist() == values
    assert torch.equal(lowp.encode(on_device(values), kind).cpu(), packed)


@pytest.mark.parametrize(
    "mode, expected",
    [
        ("rint", [4, -4, 2, -2, 0, 0, 1, 6]),
        ("round", [6, -6, 3, -3, 0.5, -0.5, 1, 6]),
        ("floor", [4, -6, 2, -3, 0, -0.5, 0.5, 6]),
    ],
)
def test_fp4_round_modes(mode, expected):
    x = on_device([5, -5, 2.5, -2.5, 0.25, -0.25, 0.75, 7])
    y = lowp.decode(lowp.encode(x, lowp.E2M1, mode), lowp.E2M1)
    assert y.tolist() == expected
    assert lowp.decode(lowp.encode(on_device([NAN, 1]), lowp.E2M1, mode), lowp.E2M1).tolist() == [
        0,
        1,
    ]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float8_e8m0fnu])
def test_e8m0_is_a_power_of_two(dtype):
    bytes_ = torch.arange(256, dtype=torch.uint8)
    found = lowp.powers(bytes_.view(dtype).to(DEVICE)).cpu()
    assert found[:255].tolist() == [2.0 ** (b - 127) for b in range(255)]
    assert found[255].isnan()


# (largest magnitude, algorithm, kind, byte)
BYTES = [
    (1.0, 0, lowp.E2M1, 125), (1.75, 0, lowp.E1M2, 127), (448.0, 0, lowp.E4M3, 127),
    (449.0, 0, lowp.E4M3, 127), (449.0, 1, lowp.E4M3, 128), (448.0, 1, lowp.E4M3, 127),
    (57344.0, 1, lowp.E5M2, 127), (6.0, 2, lowp.E2M1, 127), (6.5, 2, lowp.E2M1, 128),
    (2.0**-130, 0, lowp.E5M2, 0), (0.0, 0, lowp.E2M1, 0), (INF, 0, lowp.E2M1, 255),
    (NAN, 1, lowp.E4M3, 255),
]  # fmt: skip


@pytest.mark.parametrize("top, alg, kind, byte", BYTES)
def test_shared_exponents(top, alg, kind, byte):
    assert lowp.mx_bytes(on_device([top]), kind, alg).tolist() == [byte]


@pytest.mark.parametrize("axis", [0, -1])
def test_mx_scales_of_an_axis(axis):
    """70 numbers make three blocks; the fourth byte of the layout is 0."""
    x = rand(70, 70).float()
    y, scale = lowp.mx_quantise(x.to(DEVICE), axis, lowp.E4M3)
    assert scale.shape == ((2, 70, 2) if axis == 0 else (70, 2, 2))
    bytes_ = scale.cpu() if axis == 0 else scale.cpu().transpose(0, 1)
    lines = x if axis == 0 else x.T
    for block in range(3):
        tops = lines[block * 32 : block * 32 + 32].abs().amax(0)
        expected = [math.floor(math.log2(t)) - 8 + 127 for t in tops.tolist()]
        assert bytes_[block // 2, :, block % 2].tolist() == expected
    assert not bytes_[1, :, 1].any()
    back = lowp.mx_dequantise(y, scale, axis, lowp.E4M3).cpu()
    torch.testing.assert_close(back, x, rtol=2**-3, atol=2**-9)


@pytest.mark.parametrize("ends", [[33, 33, 100], [130, 130, 130], [0, 64, 128]])
def test_groups_of_rows_are_blocked_alone(ends):
    x = rand(130, 6).float()
    y, scale = lowp.mx_quantise_groups(x.to(DEVICE), torch.tensor(ends, device=DEVICE), lowp.E5M2)
    assert scale.shape == (130 // 64 + 3, 6, 2)
    start, used = 0, torch.zeros(130 // 64 + 3, dtype=torch.bool)
    for group, end in enumerate(ends):
        alone, its_scale = lowp.mx_quantise(x[start:end].to(DEVICE), 0, lowp.E5M2)
        rows = slice(start // 64 + group, start // 64 + group + its_scale.size(0))
        assert torch.equal(y[start:end].float(), alone.float())
        assert torch.equal(scale[rows], its_scale)
        used[rows] = True
        start = end
    assert not y[start:].float().any() and not scale.cpu()[~used].any()
    factor = lowp.mx_factor_groups(scale, torch.tensor(ends, device=DEVICE), 130)
    torch.testing.assert_close(
        (y.float() * factor).cpu()[:start], x[:start], rtol=2**-3, atol=2**-9
    )


def test_groups_that_end_outside_read_nothing_else():
    x = rand(40, 2).float().to(DEVICE)
    for ends in ([-5, 400], [30, 10]):
        y, scale = lowp.mx_quantise_groups(x, torch.tensor(ends, device=DEVICE), lowp.E4M3)
        assert y.shape == x.shape and scale.shape == (2, 2, 2)
