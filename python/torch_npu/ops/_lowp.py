# SPDX-License-Identifier: Apache-2.0
"""Low precision formats: fp8, hifloat8, fp4 and the MX formats, whose blocks share an exponent.

A *kind* is E4M3, E5M2, HIF8, E2M1 or E1M2. fp8 is stored in PyTorch's own dtypes, hifloat8 in uint8 and
fp4 in uint8 with two values a byte, the first in the low four bits. Casts saturate.
"""

import functools

import torch

from torch_npu import _dtypes
from torch_npu.ops._check import require, wide
from torch_npu.ops._groups import group_places

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
HIF8, E2M1, E1M2 = _dtypes.hifloat8, _dtypes.float4_e2m1fn_x2, _dtypes.float4_e1m2fn_x2
FP8, FP4 = (E4M3, E5M2), (E2M1, E1M2)
LARGEST = {E4M3: 448.0, E5M2: 57344.0, HIF8: 2.0**15, E2M1: 6.0, E1M2: 1.75}
_NAMES = {
    E4M3: "float8_e4m3fn", E5M2: "float8_e5m2", HIF8: "hifloat8", E2M1: "float4_e2m1fn_x2",
    E1M2: "float4_e1m2fn_x2",
}  # fmt: skip
# Exponent of the largest value, which an MX block's exponent is measured against.
_TOP_EXPONENT = {E4M3: 8, E5M2: 15, E2M1: 2, E1M2: 0}
# The dtypes' numbers that mean a kind. PyTorch's own number of float4_e2m1fn_x2 is 45.
NUMBERS = {23: E5M2, 24: E4M3, 45: E2M1} | {
    getattr(_dtypes, name): kind for kind, name in _NAMES.items()
}
_STORED = {E4M3: E4M3, E5M2: E5M2}
_FP4_VALUES = {E2M1: (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0), E1M2: tuple(i / 4 for i in range(8))}
ROUND_MODES = ("rint", "round", "floor")
NO_EXPONENT = 255  # e8m0's byte for a block that holds Inf or NaN


def kind_of(number, operator: str, argument: str = "dst_type", allowed=tuple(LARGEST)):
    """The kind that the number of a dtype means."""
    kind = NUMBERS.get(number)
    require(
        kind in allowed,
        f"{operator}: {argument} is {number}; allowed: "
        + ", ".join(f"{_NAMES[k]}" for k in allowed)
        + ".",
        "TYPE",
    )
    return kind


def kind_of_tensor(x: torch.Tensor, number, operator: str, argument: str, allowed=tuple(LARGEST)):
    """The kind of a quantised tensor: its own dtype, or for uint8 the number that comes with it."""
    own = {E4M3: E4M3, E5M2: E5M2, torch.float4_e2m1fn_x2: E2M1}.get(x.dtype)
    require(
        own is not None or x.dtype == torch.uint8,
        f"{operator}: {argument} is {x.dtype}; allowed: float8_e4m3fn, float8_e5m2, or uint8 with the "
        "number of a dtype.",
        "TYPE",
    )
    if own is None:
        return kind_of(number, operator, f"the dtype of {argument}", allowed)
    require(
        own in allowed,
        f"{operator}: {argument} is {x.dtype}; allowed: {', '.join(_NAMES[k] for k in allowed)}.",
        "TYPE",
    )
    return own


# ---- hifloat8 ---------------------------------------------------------------------------


def _hif8_magnitude(code: int) -> float:
    """The value of a code of seven bits."""
    if code < 8:
        return 2.0 ** (code - 23) if code else 0.0
    if code < 16:
        return 1 + (code & 7) / 8
    # (bits of the exponent, bits of the fraction) follow from the prefix.
    exponent_bits, fraction_bits = (
        (1, 3) if code < 32 else (2, 3) if code < 64 else (3, 2) if code < 96 else (4, 1)
    )
    fraction = code & ((1 << fraction_bits) - 1)
    field = (code >> fraction_bits) & ((1 << exponent_bits) - 1)
    low = field & ((1 << (exponent_bits - 1)) - 1)
    magnitude = (1 << (exponent_bits - 1)) + low
    exponent = -magnitude if field >> (exponent_bits - 1) else magnitude
    return 2.0**exponent * (1 + fraction / 2**fraction_bits)


_HIF8_INF, _HIF8_NAN = 0x6F, 0x80


def _hif8_values() -> list[float]:
    values = [_hif8_magnitude(code) for code in range(128)]
    values[_HIF8_INF] = float("inf")
    return [*values, float("nan"), *(-v for v in values[1:])]


def _hif8_fraction_bits(exponent: int) -> int:
    size = abs(exponent)
    return 3 if size < 4 else 2 if size < 8 else 1 if size < 16 else 0


@functools.cache
def _hif8_tables() -> tuple[list[int], list[int]]:
    """(half of the last place by float32's exponent bits, code by exponent and three fraction bits).

    Half a place is added to float32's bits, which rounds half away from zero; the bits behind a code's own
    are then ignored. Numbers from 2^-23 on become 2^-22 at least, those from 1.25 * 2^15 on infinite.
    """
    codes = {_hif8_magnitude(code): code for code in range(128) if code != _HIF8_INF}
    halves, table = [], []
    for exponent in range(-127, 129):
        fraction_bits = _hif8_fraction_bits(exponent)
        halves.append(1 << (22 - fraction_bits) if -23 < exponent < 16 else 0)
        for eighths in range(8):
            cut = eighths >> (3 - fraction_bits) << (3 - fraction_bits)
            value = 2.0 ** max(exponent, -22) * (1 + cut / 8) if exponent >= -23 else 0.0
            value = 2.0**-22 if exponent == -23 else value
            table.append(codes.get(value, _HIF8_INF))
    return halves, table


def _encode_hif8(x: torch.Tensor, saturate: bool) -> torch.Tensor:
    x = x.float()
    halves, table = _hif8_tables()
    if saturate:
        table = [_HIF8_INF - 1 if code == _HIF8_INF else code for code in table]
    bits = x.abs().contiguous().view(torch.int32)
    bits = bits + torch.tensor(halves, dtype=torch.int32, device=x.device)[bits >> 23]
    code = torch.tensor(table, dtype=torch.uint8, device=x.device)[bits >> 20]
    code = torch.where(torch.signbit(x) & (code != 0), code | 0x80, code)
    return torch.where(torch.isnan(x), torch.full_like(code, _HIF8_NAN), code)


# ---- fp4 --------------------------------------------------------------------------------


def _round(x: torch.Tensor, round_mode: str, negative: torch.Tensor) -> torch.Tensor:
    """Magnitudes rounded to whole numbers; floor goes towards minus infinity."""
    if round_mode == "rint":
        return torch.round(x)
    low = torch.floor(x)
    if round_mode == "round":
        return low + (x - low >= 0.5)
    return torch.where(negative, torch.ceil(x), low)


def _encode_fp4(x: torch.Tensor, kind, round_mode: str) -> torch.Tensor:
    x = x.nan_to_num(0.0)
    size, negative = x.abs(), torch.signbit(x)
    if kind == E1M2:
        code = _round(size * 4, round_mode, negative)
    else:
        # Steps of a half below 2, of 1 below 4, of 2 from there on; each range has two codes before it.
        per_step = torch.where(size < 2, 2.0, torch.where(size < 4, 1.0, 0.5))
        before = torch.where(size < 2, 0.0, torch.where(size < 4, 2.0, 4.0))
        code = _round(size * per_step, round_mode, negative) + before
    return code.clamp(max=7).to(torch.uint8) | (negative.to(torch.uint8) << 3)


def pack_fp4(codes: torch.Tensor) -> torch.Tensor:
    pairs = codes.unflatten(-1, (-1, 2))
    return pairs[..., 0] | (pairs[..., 1] << 4)


def unpack_fp4(x: torch.Tensor) -> torch.Tensor:
    x = x.view(torch.uint8) if x.dtype == torch.float4_e2m1fn_x2 else x
    return torch.stack((x & 15, x >> 4), -1).flatten(-2)


# ---- casts ------------------------------------------------------------------------------


def check_round_mode(round_mode: str, kind, operator: str) -> None:
    allowed = ROUND_MODES if kind in FP4 else ("round", "hybrid") if kind == HIF8 else ("rint",)
    require(
        round_mode in allowed or (kind == HIF8 and round_mode == "rint"),
        f"{operator}: round_mode is {round_mode}; allowed for {_NAMES[kind]}: {', '.join(allowed)}.",
        "VALUE",
    )


def check_pairs(x: torch.Tensor, kind, operator: str) -> None:
    """fp4 stores two values a byte."""
    require(
        kind not in FP4 or (x.dim() > 0 and x.size(-1) % 2 == 0),
        f"{operator}: If output dtype is float4_e2m1 or float4_e1m2, the last dim of input must be "
        f"divisible by 2, but the input has shape {list(x.shape)}.",
    )


def encode(x: torch.Tensor, kind, round_mode: str = "rint", saturate: bool = True) -> torch.Tensor:
    """Numbers cast to a kind. hifloat8 has one rounding, half away from zero."""
    x = wide(x)
    if kind in FP4:
        return pack_fp4(_encode_fp4(x, kind, round_mode))
    if kind == HIF8:
        return _encode_hif8(x, saturate)
    return x.clamp(-LARGEST[kind], LARGEST[kind]).to(_STORED[kind])


def decode(x: torch.Tensor, kind, dtype=torch.float32) -> torch.Tensor:
    """The numbers that a tensor of a kind holds; fp4's last size doubles."""
    if kind in FP8:
        return (x.view(kind) if x.dtype == torch.uint8 else x).to(dtype)
    if kind in FP4:
        values = [*_FP4_VALUES[kind], *(-v for v in _FP4_VALUES[kind])]
        x = unpack_fp4(x)
    else:
        values = _hif8_values()
    return torch.tensor(values, dtype=dtype, device=x.device)[x.to(torch.int64)]


def through(x: torch.Tensor, kind) -> torch.Tensor:
    """Numbers rounded to a kind and back."""
    y = wide(x)
    return decode(encode(y, kind), kind, y.dtype)


# ---- e8m0 and MX ------------------------------------------------------------------------


def powers(scale: torch.Tensor) -> torch.Tensor:
    """2^(byte - 127) of e8m0 bytes, in uint8 or PyTorch's float8_e8m0fnu; 255 is NaN."""
    if scale.dtype == torch.float8_e8m0fnu:
        scale = scale.view(torch.uint8)
    byte = scale.to(torch.int32)
    # The byte is float32's own exponent; 2^-127 is a subnormal number.
    bits = torch.where(
        byte == 0, 0x00400000, torch.where(byte == NO_EXPONENT, 0x7FC00000, byte << 23)
    )
    return bits.to(torch.int32).view(torch.float32)


def is_mx(scale) -> bool:
    """Whether a scale holds the shared exponents of an MX tensor."""
    return scale is not None and scale.dtype in (torch.uint8, torch.float8_e8m0fnu)


def check_scale(scale: torch.Tensor, operator: str, argument: str, shape=None) -> None:
    require(
        is_mx(scale),
        f"{operator}: {argument} is {scale.dtype}; allowed: uint8, float8_e8m0fnu.",
        "TYPE",
    )
    require(
        shape is None or list(scale.shape) == list(shape),
        f"{operator}: {argument} has shape {list(scale.shape)}; allowed: {None if shape is None else list(shape)}.",
    )


def mx_bytes(top: torch.Tensor, kind, alg: int = 0, largest: float = 0.0) -> torch.Tensor:
    """The e8m0 byte of blocks whose largest magnitude is `top`. 0 for empty ones, 255 for Inf and NaN.

    `alg` 0 takes the exponent of `top`, 1 and 2 the least one that does not overflow; with 2 the maximum
    is mapped on `largest`.
    """
    if alg == 0:
        _, exponent = torch.frexp(top)
        exponent = exponent - 1 - _TOP_EXPONENT[kind]
    else:
        limit = largest if alg == 2 and largest else LARGEST[kind]
        fraction, exponent = torch.frexp(top / limit)
        exponent = torch.where(fraction == 0.5, exponent - 1, exponent)
    byte = (exponent + 127).clamp(0, 254)
    byte = torch.where(top == 0, 0, torch.where(torch.isfinite(top), byte, NO_EXPONENT))
    return byte.to(torch.uint8)


def _blocks(x: torch.Tensor, axis: int, block: int) -> torch.Tensor:
    """The axis split into (blocks, block), the last one filled with zeros."""
    missing = -x.size(axis) % block
    if missing:
        shape = list(x.shape)
        shape[axis] = missing
        x = torch.cat([x, x.new_zeros(shape)], axis)
    return x.unflatten(axis, (x.size(axis) // block, block))


def _block_max(parts: torch.Tensor, axis: int) -> torch.Tensor:
    size = parts.abs()
    return size.amax(axis + 1) if parts.size(axis + 1) else size.sum(axis + 1)


def block_max(x: torch.Tensor, axis: int, block: int) -> torch.Tensor:
    """The largest magnitude of each block along an axis."""
    axis %= x.dim()
    return _block_max(_blocks(x, axis, block), axis)


def spread(values: torch.Tensor, axis: int, block: int, size: int) -> torch.Tensor:
    """One value per block repeated for the block's elements, cut to the axis's size."""
    return values.repeat_interleave(block, axis).narrow(axis, 0, size)


def pair_scale(byte: torch.Tensor, axis: int) -> torch.Tensor:
    """Bytes of blocks in the layout of MX scales: pairs of blocks, the pair as last dimension."""
    axis %= byte.dim()
    return _blocks(byte, axis, 2).movedim(axis + 1, -1)


def unpair_scale(scale: torch.Tensor, axis: int) -> torch.Tensor:
    """The bytes of blocks along an axis, one more where their number is odd."""
    axis %= scale.dim() - 1
    return scale.movedim(-1, axis + 1).flatten(axis, axis + 1)


def mx_quantise(
    x: torch.Tensor,
    axis: int,
    kind,
    alg: int = 0,
    largest: float = 0.0,
    round_mode: str = "rint",
    low: float = 0.0,
    block: int = 32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(y, scale): blocks along an axis share an exponent. `low` is the least maximum that a block has."""
    x, axis = wide(x), axis % x.dim()
    parts = _blocks(x, axis, block)
    top = _block_max(parts, axis)
    top = top.clamp(min=low) if low > 0 else top
    byte = mx_bytes(top, kind, alg, largest)
    scaled = (parts / powers(byte).unsqueeze(axis + 1)).flatten(axis, axis + 1)
    return encode(scaled.narrow(axis, 0, x.size(axis)), kind, round_mode), pair_scale(byte, axis)


def mx_factor(scale: torch.Tensor, axis: int, size: int, block: int = 32) -> torch.Tensor:
    """What each element along an axis is multiplied by."""
    axis %= scale.dim() - 1
    return spread(powers(unpair_scale(scale, axis)), axis, block, size)


def mx_dequantise(x: torch.Tensor, scale: torch.Tensor, axis: int, kind, block: int = 32):
    """The float32 numbers of an MX tensor; `scale` is in the layout of MX scales."""
    y = decode(x, kind)
    axis %= y.dim()
    return y * mx_factor(scale, axis, y.size(axis), block)


# ---- groups of rows ---------------------------------------------------------------------


def mx_quantise_groups(
    x: torch.Tensor, ends: torch.Tensor, kind, alg=0, largest=0.0, round_mode="rint"
) -> tuple[torch.Tensor, torch.Tensor]:
    """(y, scale) of a matrix whose groups of rows are blocked along the rows; 0 past the last group."""
    x = wide(x)
    place, inside = group_places(ends, x.size(0), 32, 64)
    x = torch.where(inside[:, None], x, 0)
    count = 2 * (x.size(0) // 64 + ends.numel())
    top = x.new_zeros(count, x.size(1)).scatter_reduce(
        0, place[:, None].expand_as(x), x.abs(), "amax"
    )
    byte = mx_bytes(top, kind, alg, largest)
    y = encode(x / powers(byte)[place], kind, round_mode)
    return y, pair_scale(byte, 0)


def mx_factor_groups(scale: torch.Tensor, ends: torch.Tensor, rows: int) -> torch.Tensor:
    """What each row of a matrix made by `mx_quantise_groups` is multiplied by."""
    place, _ = group_places(ends, rows, 32, 64)
    return powers(unpair_scale(scale, 0))[place]
