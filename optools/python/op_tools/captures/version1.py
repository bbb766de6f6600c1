# SPDX-License-Identifier: Apache-2.0
"""The hash that names contents in captures of version 1 (docs/capture-format.md): to read them, never to write one."""

from __future__ import annotations

import torch

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_LOW = 0xFFFFFFFF
_STRIPES = 1 << 14  # at a time


def _mix(x: int) -> int:
    x &= _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


_KEYS = [_mix((i + 1) * _GOLDEN) for i in range(8)]


def _signed(x: int) -> int:
    return (x & _MASK) - (1 << 64 if x & (1 << 63) else 0)


def _high(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The upper 64 bits of the products of unsigned numbers, which int64 holds bit by bit."""
    parts = [(n & _LOW, n >> 32 & _LOW) for n in (a, b)]
    (a0, a1), (b0, b1) = parts
    middle = ((a0 * b0) >> 32 & _LOW) + (a0 * b1 & _LOW) + (a1 * b0 & _LOW)
    return a1 * b1 + ((a0 * b1) >> 32 & _LOW) + ((a1 * b0) >> 32 & _LOW) + (middle >> 32)


def hash_bytes(raw: bytearray) -> str:
    sums = [0] * 8
    size = 64 * _STRIPES
    for at in range(0, len(raw), size):
        part = raw[at : at + size]
        part += bytes(-len(part) % 64)
        words = torch.frombuffer(part, dtype=torch.int64).view(-1, 8)
        place = torch.arange(at // 64, at // 64 + len(words)) * _signed(_GOLDEN)
        for p in range(0, 8, 2):
            a = words[:, p] ^ _signed(_KEYS[p])
            b = words[:, p + 1] ^ (place + _signed(_KEYS[p + 1]))
            sums[p] += int((a * b + words[:, p + 1]).sum())
            sums[p + 1] += int((_high(a, b) + words[:, p]).sum())
    first = _mix(len(raw) + 1) + sum(_mix((s & _MASK) ^ k) for s, k in zip(sums, _KEYS))
    second = _mix(len(raw) + _GOLDEN) + sum(_mix(s + k) for s, k in zip(sums, reversed(_KEYS)))
    return f"{first & _MASK:016x}{second & _MASK:016x}"
