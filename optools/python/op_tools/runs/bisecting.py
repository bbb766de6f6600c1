# SPDX-License-Identifier: Apache-2.0
"""Which operators have to run elsewhere for a run to come out right."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

LIMIT = 8  # operators to name before giving up


@dataclass
class Bisection:
    culprits: list[str]  # each of them is needed, the last operators first
    complete: bool  # with these alone elsewhere the run is good
    unsearched: int  # operators that were not looked at for more
    runs: int


def bisect(
    operators: Iterable[str], is_good: Callable[[list[str]], bool], limit: int = LIMIT
) -> Bisection:
    """`is_good(names)` runs with these elsewhere. No culprits: not even all of them help.

    The shortest good beginning of the list ends with an operator that is needed. It stays
    elsewhere from then on, and what is before it is searched for the next.
    """
    suspects, culprits, runs = list(operators), [], 0

    def good(count: int) -> bool:
        nonlocal runs
        runs += 1
        return is_good([*culprits, *suspects[:count]])

    if not suspects or not good(len(suspects)):
        return Bisection([], False, len(suspects), runs)
    while len(culprits) < limit:
        low, high = 1, len(suspects)  # the first `high` are good
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if good(middle) else (middle + 1, high)
        suspects, culprit = suspects[: high - 1], suspects[high - 1]
        culprits.append(culprit)
        if not suspects or good(0):
            return Bisection(culprits, True, 0, runs)
    return Bisection(culprits, False, len(suspects), runs)
