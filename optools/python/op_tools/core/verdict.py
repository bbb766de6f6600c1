# SPDX-License-Identifier: Apache-2.0
"""Verdicts on results: how far from a float64 reference, in units of what rounding allows.

    E = |got - ref| / (2 u_out |ref| + u_acc (8 M + 1.5 sqrt(K) |ref|))

E <= 1 passes, up to 3 is a warning, above (or more than 0.1 % of the elements above 1) an error.
"""

from __future__ import annotations

import torch

from op_tools.core import _C

ORDER = ("skip", "pass", "warn", "overflow", "error")


def judge(
    got: torch.Tensor,
    reference: torch.Tensor,
    *,
    majorant: torch.Tensor | None = None,
    terms: int = 1,
    tolerance: tuple[float, float] | None = None,
    details: bool = False,
) -> dict:
    """The verdict on `got`, with what is known about the worst element.

    `reference` is float64 (complex128) where `got` is a number of any width; integers are compared
    exactly. `majorant`: the operator applied to absolute values, |reference| when not given.
    `terms`: how many products or summands went into one element. `tolerance`: (atol, rtol) of the
    allclose column.
    """
    return _C.judge(got, reference, majorant, terms, tolerance, details)


def worse(a: str, b: str) -> str:
    """The worse of two verdicts."""
    return max(a, b, key=ORDER.index)


def worse_e(a: float | None, b: float | None) -> float | None:
    """The worse of two E: a NaN is worse than any number, None says nothing."""
    if a is None or b is None:
        return b if a is None else a
    return a if a != a or b <= a else b
