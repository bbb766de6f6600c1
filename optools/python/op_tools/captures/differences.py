# SPDX-License-Identifier: Apache-2.0
"""How two captured calls differ: every tensor and every other value, on both sides.

Devices are left out: two captures of one program on two devices are meant to be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from op_tools.captures import Record
from op_tools.captures.values import CaptureError, Device, Opaque, TensorRef, all_leaves

_MOST = 1 << 30  # elements that are compared one by one

Places = dict[str, object]  # "args[0]" -> a tensor or a plain value


@dataclass(frozen=True)
class Difference:
    place: str
    relative: float  # of the largest number; infinite where that means nothing
    text: str


def _places(**parts: object) -> Places:
    return {place: leaf for name, value in parts.items() for place, leaf in all_leaves(value, name)}


def inputs_of(record: Record) -> Places:
    return _places(args=record.args, kwargs=record.kwargs)


def results_of(record: Record) -> Places:
    """What a call returned, wrote or raised."""
    found = _places(outputs=record.outputs, after=record.after, grad_inputs=record.grad_inputs)
    if record.raised is not None:
        found["raised"] = record.raised
    return found


def between(a: Places, b: Places) -> list[Difference]:
    """What is not the same in both, or only in one of them."""
    found = []
    for place in dict.fromkeys([*a, *b]):
        if place not in a or place not in b:
            one, other = (_said(p[place]) if place in p else "nothing" for p in (a, b))
            found.append(Difference(place, math.inf, f"{one} and {other}"))
        else:
            found += _compared(place, a[place], b[place])
    return found


def worst(found: list[Difference]) -> float:
    return max((difference.relative for difference in found), default=0.0)


def same_bits(a: Places, b: Places, overlook: tuple[str, ...] = ()) -> bool:
    """Surely the same: tensors whose contents are not known are not, but for those that hold
    nothing for a reason in `overlook`."""
    return a.keys() == b.keys() and all(_same(a[place], b[place], overlook) for place in a)


def _same(one: object, other: object, overlook: tuple[str, ...]) -> bool:
    if not isinstance(one, TensorRef) or not isinstance(other, TensorRef):
        return not list(_compared("", one, other))
    if (one.dtype, one.shape, one.stride) != (other.dtype, other.shape, other.stride):
        return False
    if one.reason in overlook and one.reason == other.reason:
        return True
    return same_contents(one, other) and (one.hash is not None or _is_empty(one, other))


def same_contents(one: TensorRef, other: TensorRef) -> bool:
    """Do both hold the same bytes? By their hashes; versions of the format have different ones."""
    if None in (one.hash, other.hash) or one.capture.version == other.capture.version:
        return one.hash == other.hash
    for ref in (one, other):
        if not ref.capture.has_contents:
            raise CaptureError(
                f"{one.capture.path} and {other.capture.path} have versions {one.capture.version} and "
                f"{other.capture.version} of the format, whose hashes cannot be compared, and "
                f"{ref.capture.path} has no contents: capture one of them again"
            )
    return one.nbytes == other.nbytes and torch.equal(one.contents(), other.contents())


def _is_empty(one: TensorRef, other: TensorRef) -> bool:
    return one.numel == 0 and one.reason is None and other.reason is None


def _said(leaf: object) -> str:
    return leaf.describe() if isinstance(leaf, TensorRef) else repr(leaf)


def _compared(place: str, one: object, other: object) -> Iterator[Difference]:
    if isinstance(one, TensorRef) and isinstance(other, TensorRef):
        if one.shape != other.shape or one.dtype != other.dtype:
            yield Difference(place, math.inf, f"{one.describe()} and {other.describe()}")
        elif one.stride != other.stride or not same_contents(one, other):
            yield from _elements(place, one, other)
    elif not _equal(one, other):
        yield Difference(place, _gap(one, other), f"{_said(one)} and {_said(other)}")


def _equal(one: object, other: object) -> bool:
    devices = (torch.device, Device)
    if isinstance(one, devices) and isinstance(other, devices):
        return True
    if isinstance(one, Opaque) and isinstance(other, Opaque):
        return one.kind.split()[:1] == other.kind.split()[:1]  # a generator of any device
    if isinstance(one, TensorRef) or isinstance(other, TensorRef):
        return False
    return one == other or (one != one and other != other)


def _gap(one: object, other: object) -> float:
    numbers = (int, float, complex)
    if not isinstance(one, numbers) or not isinstance(other, numbers):
        return math.inf
    try:
        gap = abs(one - other) / (abs(other) or 1.0)
    except OverflowError:
        return math.inf
    return gap if gap == gap else math.inf


def _elements(place: str, one: TensorRef, other: TensorRef) -> Iterator[Difference]:
    if one.numel > _MOST:
        yield Difference(place, math.inf, "other bits, or in another order of memory")
        return
    try:
        x, y = one.load(), other.load()
    except CaptureError:
        if None not in (one.hash, other.hash) and not same_contents(one, other):
            yield Difference(place, math.inf, "other bits")
        return
    same = (x == y) | ((x != x) & (y != y))
    if bool(same.all()):
        return  # the same values in another order of memory, or other bits of NaN
    wide = torch.complex128 if x.is_complex() else torch.float64
    x, y = x.to(wide), y.to(wide)
    gap = torch.where(same, 0.0, (x - y).abs())
    size = y.abs()
    largest = torch.where(size.isfinite(), size, 0.0).max().item() or 1.0
    relative = gap.max().item() / largest
    relative = relative if relative == relative else math.inf
    count = int((~same).sum())
    text = f"{count} of {x.numel()} elements, at most {relative:.3g} of the largest"
    yield Difference(place, relative, text)
