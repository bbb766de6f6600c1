# SPDX-License-Identifier: Apache-2.0
"""How large the numbers in a tensor are: counts by their power of two."""

from __future__ import annotations

import torch

from op_tools.captures import TensorRef
from op_tools.core import quiet

SAMPLE = 1 << 14  # elements looked at, evenly spread
BINS = 96
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Histograms:
    """One per content: tensors with the same bytes share it."""

    def __init__(self, budget: int) -> None:
        self.budget = budget  # bytes that may still be read
        self.unread = 0  # tensors left out for it
        self.table: list[list] = []
        self._known: dict[tuple, int | None] = {}

    def number(self, ref: TensorRef) -> int | None:
        """Place in the table; None for what has none. Raises CaptureError."""
        if ref.hash is None or ref.nbytes == 0 or not ref.capture.has_contents:
            return None
        if not (ref.dtype.is_floating_point or ref.dtype.is_complex):
            return None
        key = (ref.hash, ref.dtype)
        if key not in self._known:
            if ref.nbytes > self.budget:
                self.unread += 1
                return None
            self.budget -= ref.nbytes
            self._known[key] = None  # also where reading it fails: said once
            with quiet():
                self.table.append(counts(ref.elements()))
            self._known[key] = len(self.table) - 1
        return self._known[key]


def counts(flat: torch.Tensor) -> list:
    """[power of two of the first count, counts, zeros, NaNs, infinities, elements looked at, all].

    A count at p is of numbers with 2**p <= |x| < 2**(p+1); the first also holds those below.
    """
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    total = flat.numel()
    x = flat[:: max(1, total // SAMPLE)]
    x = x if x.dtype in _FLOATS else x.to(torch.float32)
    x = x.to(torch.float64).abs()
    looked = x.numel()
    nan = int(x.isnan().sum())
    infinite = int(x.isinf().sum())
    zero = int((x == 0).sum())
    x = x[(x > 0) & (x < float("inf"))]
    if x.numel() == 0:
        return [0, [], zero, nan, infinite, looked, total]
    power = torch.frexp(x).exponent - 1
    low = max(int(power.min()), int(power.max()) - BINS + 1)
    found = torch.bincount((power.clamp(min=low) - low).to(torch.int64))
    return [low, found.tolist(), zero, nan, infinite, looked, total]
