# SPDX-License-Identifier: Apache-2.0
"""Memory over time: storages of a capture's tensors, from their first use to their last.

An allocator may hold more; a tensor no operator used again is gone here when it was used last.
"""

from __future__ import annotations

from dataclasses import dataclass

from op_tools.captures import Record, TensorRef, leaves

POINTS = 1500


@dataclass
class _Life:
    first: int  # place of the call that made it; -1: it was there before
    last: int
    size: int


class Memory:
    def __init__(self) -> None:
        self._living: dict[tuple[str, int], _Life] = {}
        self._ended: dict[str, list[_Life]] = {}
        self._calls = 0

    def add(self, record: Record) -> None:
        """The next call."""
        place = self._calls
        self._calls += 1
        given = _storages([record.args, record.kwargs])
        for key, size in given.items():
            life = self._living.setdefault(key, _Life(-1, place, size))
            life.last, life.size = place, max(life.size, size)
        for key, size in _storages([record.outputs, record.grad_inputs]).items():
            if key in given:
                self._living[key].size = max(self._living[key].size, size)
                continue
            before = self._living.get(key)  # the address of memory that was freed
            if before is not None:
                self._ended.setdefault(key[0], []).append(before)
            self._living[key] = _Life(place, place, size)

    def curve(self, starts: list[float | None]) -> dict | None:
        """Of the device with the most memory: `points` of [us, bytes made by calls, bytes there
        before], at most 1,500 of them, each the most of its time; `peak` and the call's place."""
        lives: dict[str, list[_Life]] = {
            device: list(ended) for device, ended in self._ended.items()
        }
        for (device, _), life in self._living.items():
            lives.setdefault(device, []).append(life)
        accelerators = {device: of for device, of in lives.items() if device != "cpu"} or lives
        if not accelerators or not self._calls:
            return None
        device = max(accelerators, key=lambda name: sum(life.size for life in accelerators[name]))
        made, there = self._sums(accelerators[device])
        totals = [a + b for a, b in zip(made, there)]
        peak = max(range(len(totals)), key=totals.__getitem__)
        every = -(-len(totals) // POINTS)
        points = []
        for first in range(0, len(totals), every):
            most = max(range(first, min(first + every, len(totals))), key=totals.__getitem__)
            if most < len(starts) and starts[most] is not None:
                points.append([round(starts[most], 1), made[most], there[most]])
        return {"device": device, "points": points, "peak": [totals[peak], peak]}

    def _sums(self, lives: list[_Life]) -> tuple[list[int], list[int]]:
        made, there = [0] * (self._calls + 1), [0] * (self._calls + 1)
        for life in lives:
            row = there if life.first < 0 else made
            row[max(life.first, 0)] += life.size
            row[life.last + 1] -= life.size
        for row in (made, there):
            for place in range(1, len(row)):
                row[place] += row[place - 1]
        return made[:-1], there[:-1]


def _storages(values: list) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for _, ref in leaves(values, ""):
        if ref.storage and ref.numel and not ref.is_number:
            key = (ref.device, ref.storage)
            found[key] = max(found.get(key, 0), _extent(ref))
    return found


def _extent(ref: TensorRef) -> int:
    """Bytes from the storage's beginning to the tensor's end."""
    last = sum((size - 1) * stride for size, stride in zip(ref.shape, ref.stride))
    return (ref.offset + last + 1) * ref.dtype.itemsize
