# SPDX-License-Identifier: Apache-2.0
"""How two results are compared: the rules behind TestCase's assertions.

Tensors are read block by block, views of the originals: a comparison takes a few megabytes more,
whatever their size.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

# Added to the denominator, so that two tiny values are not far apart.
_GUARD = {torch.float16: 6e-8}
_DEFAULT_GUARD = 1e-9
# Elements compared at once.
_BLOCK = 1 << 18


class Mismatch(Exception):
    """The two differ; the text says where and by how much."""


def _as_tensor(value) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        value = value.detach()
        return value.to_dense() if value.layout != torch.strided else value
    return torch.as_tensor(np.asarray(value))


def _blocks(x: torch.Tensor, y: torch.Tensor, start: tuple[int, ...] | None = None) -> Iterator:
    """(where it begins, part of x, part of y), the parts on the CPU; both of one shape."""
    start = (0,) * x.dim() if start is None else start
    if x.numel() <= _BLOCK:
        if x.numel():
            yield start, x.cpu(), y.cpu()
        return
    dim = next(i for i, size in enumerate(x.shape) if size > 1)
    half = (x.shape[dim] + 1) // 2
    for begin, length in ((0, half), (half, x.shape[dim] - half)):
        inner = (*start[:dim], start[dim] + begin, *start[dim + 1 :])
        yield from _blocks(x.narrow(dim, begin, length), y.narrow(dim, begin, length), inner)


def _check_shape(x: torch.Tensor, y: torch.Tensor) -> None:
    if x.shape != y.shape:
        raise Mismatch(f"shapes differ: {tuple(x.shape)} and {tuple(y.shape)}")


def _check_dtype(x: torch.Tensor, y: torch.Tensor) -> None:
    if x.dtype != y.dtype:
        raise Mismatch(f"dtypes differ: {x.dtype} and {y.dtype}")


def _place(start: tuple[int, ...], inside) -> tuple[int, ...]:
    return tuple(a + int(b) for a, b in zip(start, inside, strict=True))


def _first(wrong: torch.Tensor) -> tuple[int, ...]:
    return tuple(wrong.nonzero()[0].tolist())


def _check_nan(start: tuple[int, ...], x: torch.Tensor, y: torch.Tensor) -> None:
    wrong = x.isnan() != y.isnan()
    if wrong.any():
        inside = _first(wrong)
        raise Mismatch(
            f"NaN in one only, at {_place(start, inside)}: {x[inside].item()} and "
            f"{y[inside].item()}"
        )


def _check_equal(x: torch.Tensor, y: torch.Tensor) -> None:
    count, first = 0, ""
    for start, a, b in _blocks(x, y):
        wrong = a != b
        found = int(wrong.sum())
        if found and not count:
            inside = _first(wrong)
            first = f"{_place(start, inside)}: {a[inside].item()} and {b[inside].item()}"
        count += found
    if count:
        raise Mismatch(f"{count} of {x.numel()} elements differ, the first at {first}")


def _errors(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Absolute differences; none where both are NaN or the same infinity."""
    error = (x - y).abs()
    if x.dtype == torch.int64:
        # Differences beyond int64 wrap around.
        far = (x.double() - y.double()).abs() >= 2.0**62
        error = error.masked_fill_(far, torch.iinfo(torch.int64).max)
    return error.masked_fill_((x == y) | (x.isnan() & y.isnan()), 0)


@dataclass
class _Worst:
    """The largest difference so far; one that is no number is larger than any."""

    rank: float = -1.0
    text: str = ""

    def look(self, start, x: torch.Tensor, y: torch.Tensor, error: torch.Tensor) -> None:
        ranks = error.double().nan_to_num(nan=float("inf"))
        at = int(ranks.argmax())
        rank = ranks.flatten()[at].item()
        if rank > self.rank:
            inside = np.unravel_index(at, tuple(x.shape))
            self.rank = rank
            self.text = (
                f"the largest difference is {error.flatten()[at].item():.6g}, at "
                f"{_place(start, inside)}: {x[inside].item()} and {y[inside].item()}; "
            )


def compare_rtol(x, y, prec: float, prec16: float, auto_trans_dtype: bool) -> None:
    x, y = _as_tensor(x), _as_tensor(y)
    _check_shape(x, y)
    if not auto_trans_dtype:
        _check_dtype(x, y)
    if x.is_complex() or y.is_complex():
        raise Mismatch("complex values are not accepted: compare .real and .imag")
    dtype = y.dtype
    if dtype == torch.bool:
        _check_equal(x, y)
        return
    bfloat = dtype == torch.bfloat16
    allowed = prec16 if dtype in (torch.float16, torch.bfloat16) else prec
    off, worst = [0, 0], _Worst()
    for start, a, b in _blocks(x, y):
        a = a.to(dtype)
        _check_nan(start, a, b)
        wide, other = a.double(), b.double()
        error = _errors(wide, other)
        if bfloat:
            off[0] += int((error > prec16 + prec16 * other.abs()).sum())
        else:
            guard = _GUARD.get(dtype, _DEFAULT_GUARD)
            relative = error / (torch.maximum(wide.abs(), other.abs()) + guard)
            relative = torch.where(error == 0, error, relative.nan_to_num(nan=float("inf")))
            # An error that is not a number is one.
            for i, measure in enumerate((relative, error)):
                off[i] += int((~(measure <= allowed)).sum())
        worst.look(start, a, b, error)
    if bfloat and off[0]:
        raise Mismatch(f"{worst.text}allowed is {prec16} + {prec16} * |second|")
    if not bfloat and min(off) > allowed * x.numel():
        raise Mismatch(
            f"{worst.text}{off[0]} of {x.numel()} elements are off by more than {allowed} "
            f"relatively, {off[1]} absolutely"
        )


def compare_almost(x, y, prec: float, allow_inf: bool, exact_dtype: bool) -> None:
    """Within `prec` of each other, absolutely; a number goes with a tensor of one element."""
    x, y = _as_tensor(x), _as_tensor(y)
    if x.dim() == 0 or y.dim() == 0:
        if x.numel() != 1 or y.numel() != 1:
            raise Mismatch(f"shapes differ: {tuple(x.shape)} and {tuple(y.shape)}")
        x, y = x.reshape(()), y.reshape(())
    _check_shape(x, y)
    if exact_dtype:
        _check_dtype(x, y)
    if x.dtype == torch.bool and y.dtype == torch.bool:
        _check_equal(x, y)
        return
    wide = torch.complex128 if x.is_complex() or y.is_complex() else torch.float64
    if not (x.is_floating_point() or y.is_floating_point() or x.is_complex() or y.is_complex()):
        wide = torch.int64
    failed, worst = False, _Worst()
    for start, part, other in _blocks(x, y):
        a, b = part.to(wide), other.to(wide)
        _check_nan(start, a, b)
        error = _errors(a, b)
        if allow_inf:
            error.masked_fill_(a.isinf() & b.isinf(), 0)
        if (~(error <= prec)).any():
            failed = True
            worst.look(start, part, other, error)
    if failed:
        raise Mismatch(f"{worst.text}allowed is {prec}")
