# SPDX-License-Identifier: Apache-2.0
"""How we measure: alternating pairs in one process, median ratio, bootstrap 95 % interval.

The same program against itself (A/A) is measured first; when its interval's middle is off by more
than 2 % the machine is too noisy and the measurement is repeated.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

AA_LIMIT = 0.02
AA_TRIES = 5
# On a busy machine processor time of this process tells more than the wall clock.
CLOCKS = {"wall": time.perf_counter_ns, "cpu": time.process_time_ns}
clock = CLOCKS["wall"]


@dataclass
class Ratio:
    """ours / theirs: median over pairs, with a bootstrap 95 % interval."""

    median: float
    low: float
    high: float
    ours_us: float
    theirs_us: float

    def meets(self, bar: float) -> bool:
        return self.low <= bar

    def __str__(self) -> str:
        return (
            f"{self.median:.3f}x [{self.low:.3f}, {self.high:.3f}] "
            f"({_time(self.ours_us)} against {_time(self.theirs_us)})"
        )


def _time(us: float) -> str:
    return f"{us / 1000:.2f} ms" if us >= 1000 else f"{us:.3f} us"


def use_clock(name: str) -> None:
    global clock
    clock = CLOCKS[name]


def timed(fn: Callable[[], object], repeat: int = 1) -> float:
    """Microseconds per call."""
    start = clock()
    for _ in range(repeat):
        fn()
    return (clock() - start) / 1000 / repeat


def _bootstrap(ratios: list[float], rounds: int = 2000) -> tuple[float, float]:
    rng = random.Random(0)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(rounds))
    return medians[int(0.025 * rounds)], medians[int(0.975 * rounds)]


def ratio_of(ours: list[float], theirs: list[float]) -> Ratio:
    """Of times taken in pairs, in microseconds."""
    ratios = [a / b for a, b in zip(ours, theirs)]
    low, high = _bootstrap(ratios)
    median = statistics.median
    return Ratio(median(ratios), low, high, median(ours), median(theirs))


def pairs(
    ours: Callable[[], object], theirs: Callable[[], object], count: int, repeat: int = 1
) -> Ratio:
    """Times the two turn by turn; which goes first alternates, so drift hits both."""
    our_times, their_times = [], []
    for i in range(count):
        if i % 2:
            a, b = timed(ours, repeat), timed(theirs, repeat)
        else:
            b, a = timed(theirs, repeat), timed(ours, repeat)
        our_times.append(a)
        their_times.append(b)
    return ratio_of(our_times, their_times)


def compare(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    again: Callable[[], object],
    count: int,
    repeat: int = 1,
) -> tuple[Ratio, Ratio]:
    """A/A of `theirs` against `again` (a second build of the same), then ours against theirs.

    Returns (A/A, ratio) of the quietest attempt.
    """
    best: tuple[Ratio, Ratio] | None = None
    for _ in range(AA_TRIES):
        quiet = pairs(theirs, again, count, repeat)
        ratio = pairs(ours, theirs, count, repeat)
        if best is None or abs(quiet.median - 1) < abs(best[0].median - 1):
            best = quiet, ratio
        if abs(quiet.median - 1) <= AA_LIMIT:
            break
    assert best is not None
    return best


def against_cpu(make: Callable[[str], Callable[[], object]], count: int) -> tuple[Ratio, Ratio]:
    """(A/A, npu against CPU) of what `make(device)` gives to call."""
    ours, theirs, again = (make(device) for device in ("npu", "cpu", "cpu"))
    for fn in (ours, theirs, again):
        timed(fn, 3)
    return compare(ours, theirs, again, count)
