# SPDX-License-Identifier: Apache-2.0
"""Number formats of eight bits and fewer, for references: tables of values and the MX block formats.

Everything is float64 and plain PyTorch. Numbers of dtypes are torch_npu's: 23, 291 float8_e5m2;
24, 292 float8_e4m3fn; 290 hifloat8; 296 float4_e2m1; 297 float4_e1m2.
"""

import torch

FLOAT8 = {
    23: torch.float8_e5m2, 291: torch.float8_e5m2, 24: torch.float8_e4m3fn, 292: torch.float8_e4m3fn,
}  # fmt: skip
FLOAT4 = {296: (0, 0.5, 1, 1.5, 2, 3, 4, 6), 297: tuple(i / 4 for i in range(8))}
EMAX = {torch.float8_e5m2: 15, torch.float8_e4m3fn: 8, 296: 2, 297: 0}


def unsettled(cast, x):
    """cast(x), with `either`: where float32's arithmetic, a few roundings long, may come to a neighbour.

    Numbers that float16 holds come without roundings: for them the border itself is tested.
    """
    y = cast(x)
    below, above = (
        part.view(torch.uint8) if part.dtype.itemsize == 1 else part
        for part in (cast(x * (1 - 2.0**-20)), cast(x * (1 + 2.0**-20)))
    )
    y.either = (below != above) & (x.half().double() != x)
    return y


def to_float8(x, kind):
    """Saturates."""
    top = torch.finfo(kind).max
    return unsettled(lambda v: v.clamp(-top, top).to(kind), x)


def nearest(x, grid, mode="rint"):
    """Places in an ascending grid of magnitudes; `rint` breaks ties to the even place."""
    grid = torch.tensor(grid, dtype=torch.float64)
    below = (torch.searchsorted(grid, x.abs().contiguous(), right=True) - 1).clamp(
        max=len(grid) - 1
    )
    above = (below + 1).clamp(max=len(grid) - 1)
    middle = (grid[below] + grid[above]) / 2
    if mode == "floor":  # towards minus infinity
        up = (x < 0) & (x.abs() > grid[below])
    elif mode == "round":
        up = x.abs() >= middle
    else:
        up = (x.abs() > middle) | ((x.abs() == middle) & (below % 2 == 1))
    return torch.where(up, above, below)


def float4_codes(x, number, mode="rint"):
    codes = nearest(x.nan_to_num(0.0), FLOAT4[number], mode)
    return codes | (torch.signbit(x).long() << 3)


def float4_values(codes, number):
    magnitude = torch.tensor(FLOAT4[number], dtype=torch.float64)[codes & 7]
    return torch.where(codes >= 8, -magnitude, magnitude)


def pack4(codes):
    """Two codes a byte, the first in the low half."""
    return (codes[..., ::2] | (codes[..., 1::2] << 4)).to(torch.uint8)


def unpack4(packed):
    codes = packed.long()
    return torch.stack((codes & 15, codes >> 4), -1).flatten(-2)


def _hif8_value(code: int) -> float:
    bits = f"{code & 127:07b}"
    sign = -1.0 if code & 128 else 1.0
    if code == 0x80:
        return float("nan")
    if code & 127 == 0x6F:
        return sign * float("inf")
    for prefix, width in (("11", 4), ("10", 3), ("01", 2), ("001", 1), ("0001", 0)):
        if bits.startswith(prefix):
            field, fraction = bits[len(prefix) :][:width], bits[len(prefix) + width :]
            exponent = 0
            if width:
                exponent = 2 ** (width - 1) + int(field[1:] or "0", 2)
                exponent = -exponent if field[0] == "1" else exponent
            return sign * 2.0**exponent * (1 + int(fraction, 2) / 2 ** len(fraction))
    m = int(bits[4:], 2)
    return sign * 2.0 ** (m - 23) if m else 0.0


HIF8 = torch.tensor([_hif8_value(c) for c in range(256)], dtype=torch.float64)


def hif8_codes(x):
    """Half away from zero; from 1.25 * 2^15 on infinite; below 2^-23 zero."""
    return unsettled(_hif8_codes, x)


def _hif8_codes(x):
    finite = sorted((v, c) for c, v in enumerate(HIF8.tolist()[:128]) if v < float("inf"))
    values, codes = [v for v, _ in finite], torch.tensor([c for _, c in finite])
    out = codes[nearest(x, values, "round")]
    size = x.abs()
    out = torch.where(size < 2.0**-23, torch.zeros_like(out), out)
    out = torch.where((size >= 2.0**-23) & (size < 2.0**-22), torch.full_like(out, 1), out)
    out = torch.where(size >= 1.25 * 2.0**15, torch.full_like(out, 0x6F), out)
    out = torch.where((x < 0) & (out > 0), out | 0x80, out)
    return torch.where(x.isnan(), torch.full_like(out, 0x80), out).to(torch.uint8)


def values_of(x, number=None):
    """Float64 values of a tensor of float8, or of uint8 bytes of format `number`."""
    if x.dtype != torch.uint8:
        return x.double()
    return HIF8[x.long()] if number == 290 else float4_values(unpack4(x), number or 296)


def e8m0(bytes_):
    return torch.exp2(bytes_.double() - 127)


def packed_int4(q):
    """Eight values an int32, the first in the lowest bits."""
    parts = (q.long() & 15).unflatten(-1, (-1, 8))
    whole = (parts << torch.arange(0, 32, 4)).sum(-1)
    return torch.where(whole >= 2**31, whole - 2**32, whole).to(torch.int32)


# ---- MX: a shared power of two for each block of an axis
def _kind(number):
    return FLOAT8.get(number, number)


def exponents(a, number, alg=0, dmax=0.0):
    """Bytes of block maxima."""
    kind = _kind(number)
    if alg == 0:
        e = torch.frexp(a)[1].long() - 1 - EMAX[kind]
    else:
        top = (dmax or 6.0) if kind in FLOAT4 else torch.finfo(kind).max
        mantissa, e = torch.frexp((a / top).float())
        e = torch.where(mantissa == 0.5, e - 1, e).long()
    return torch.where(a == 0, torch.zeros_like(e), (e + 127).clamp(0, 254))


def cast(t, number, mode="rint"):
    kind = _kind(number)
    if kind in FLOAT4:
        return unsettled(lambda v: float4_codes(v, number, mode), t)
    return to_float8(t, kind)


def pairs(bytes_, axis):
    """Block numbers of `axis` as (pairs, 2), the two at the end."""
    moved = bytes_.movedim(axis, -1)
    if moved.size(-1) % 2:
        moved = torch.cat((moved, torch.zeros_like(moved[..., :1])), -1)
    moved = moved.unflatten(-1, (-1, 2))
    return moved.movedim(-2, axis if axis >= 0 else axis - 1).to(torch.uint8).contiguous()


def blocks_max(v, axis, block=32):
    """Largest magnitude of each block of an axis."""
    return torch.stack([part.abs().amax(axis) for part in v.split(block, axis)], axis) if v.size(
        axis
    ) else v.abs()  # fmt: skip


def spread(x, axis, block, size):
    return x.repeat_interleave(block, axis).narrow(axis, 0, size)


def stored(codes):
    if codes.dtype != torch.int64:
        return codes
    packed = pack4(codes)
    packed.either = codes.either[..., ::2] | codes.either[..., 1::2]
    return packed


def mx_codes(v, axis=-1, number=296, alg=0, dmax=0.0, low=0.0, mode="rint", block=32):
    """(codes or float8 of v's shape, bytes in pairs)."""
    a = blocks_max(v, axis, block)
    a = a.clamp(min=low) if low > 0 else a
    bytes_ = exponents(a, number, alg, dmax)
    scale = spread(e8m0(bytes_), axis, block, v.size(axis))
    zero = spread(a, axis, block, v.size(axis)) == 0
    y = cast(torch.where(zero, torch.zeros_like(v), v / scale), number, mode)
    return y, pairs(bytes_, axis)


def mx(*args, **kwargs):
    codes, scale = mx_codes(*args, **kwargs)
    return stored(codes), scale


def mx_rows(v, ends, number=296, alg=0, dmax=0.0, mode="rint"):
    """Blocks of 32 rows inside each group; rows past the last group are 0."""
    m = v.size(0)
    bytes_ = torch.zeros(m // 64 + len(ends), v.size(1), 2, dtype=torch.uint8)
    codes, at = cast(torch.zeros_like(v), number), 0
    for g, end in enumerate(ends):
        if end > at:
            part, scale = mx_codes(v[at:end], -2, number, alg, dmax, mode=mode)
            row = at // 64 + g
            bytes_[row : row + scale.size(0)] = scale
            whole = codes.view(torch.uint8) if part.dtype.itemsize == 1 else codes
            whole[at:end] = part.view(torch.uint8) if part.dtype.itemsize == 1 else part
            codes.either[at:end] = part.either
        at = end
    return stored(codes), bytes_


def mx_values(y, scale, axis, number=None, block=32):
    """The numbers that y and its bytes in pairs mean."""
    v = values_of(y, number)
    axis = axis - v.dim() if axis >= 0 else axis
    bytes_ = scale.movedim(-1, axis).flatten(axis - 1, axis)
    return v * spread(e8m0(bytes_), axis, block, v.size(axis))


def ends_of(group_list, counts):
    """Where each group ends, of counts or of the ends themselves."""
    return (group_list.cumsum(0) if counts else group_list).tolist()
