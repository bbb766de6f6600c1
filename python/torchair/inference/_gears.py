# SPDX-License-Identifier: Apache-2.0
"""Gears: the sizes that a dimension of an input will have, said beforehand.

The sizes of gears are recorded; a call with others runs too, but is not recorded.
"""

import itertools
import weakref

import torch

_LEAST, _MOST = 2, 100
# id of a tensor -> (weak reference, {dimension: sizes})
_gears: dict[int, tuple] = {}


def set_dim_gears(t: torch.Tensor, dim_gears: dict) -> None:
    """`dim_gears`: {dimension: list of sizes}. The dimensions are traced as dynamic."""
    if not isinstance(t, torch.Tensor):
        raise AssertionError(f"set_dim_gears: expected a tensor, but got {type(t).__name__}")
    if not isinstance(dim_gears, dict) or not dim_gears:
        raise AssertionError("set_dim_gears: dim_gears: expected a dict like {0: [1, 8]}")
    checked = {dim: _checked(t, dim, sizes) for dim, sizes in dim_gears.items()}
    before = of(t)
    if before is not None and before != checked:
        raise AssertionError(
            f"set_dim_gears: the tensor has gears already: {before}. They cannot be changed."
        )
    key = id(t)
    _gears[key] = (weakref.ref(t, lambda _: _gears.pop(key, None)), checked)
    for dim in checked:
        torch._dynamo.maybe_mark_dynamic(t, dim)


def _checked(t: torch.Tensor, dim, sizes) -> list[int]:
    if isinstance(dim, bool) or not isinstance(dim, int) or not 0 <= dim < t.dim():
        raise AssertionError(
            f"set_dim_gears: dimension {dim!r} is not in the range [0, {t.dim() - 1}]"
        )
    if not isinstance(sizes, (list, tuple)) or any(
        isinstance(s, bool) or not isinstance(s, int) or s <= 0 for s in sizes
    ):
        raise AssertionError(
            f"set_dim_gears: gears of dimension {dim}: expected a list of positive int, "
            f"but got {sizes!r}"
        )
    if not _LEAST <= len(sizes) <= _MOST:
        raise AssertionError(
            f"set_dim_gears: dimension {dim} has {len(sizes)} gears, expected {_LEAST} to {_MOST}"
        )
    return list(sizes)


def of(t) -> dict | None:
    found = _gears.get(id(t))
    return found[1] if found is not None and found[0]() is t else None


def merged(inputs: list, policy: str) -> list[dict] | None:
    """The calls that are foreseen, each {(input, dimension): size}; None without gears.
    `zip` takes the gears side by side, `product` every combination."""
    places, sizes = [], []
    for i, value in enumerate(inputs):
        for dim, gears in (of(value) or {}).items():
            places.append((i, dim))
            sizes.append(gears)
    if not places:
        return None
    if policy == "zip":
        if len({len(s) for s in sizes}) > 1:
            raise AssertionError(
                "dynamic_gears_merge_policy zip: all dimensions need as many gears, but they have "
                f"{[len(s) for s in sizes]}. Use product, or lists of one length."
            )
        rows = zip(*sizes)
    else:
        rows = itertools.product(*sizes)
    rows = list(dict.fromkeys(rows))
    if len(rows) > _MOST:
        raise AssertionError(f"gears: {len(rows)} combinations, at most {_MOST} are allowed")
    return [dict(zip(places, row)) for row in rows]
