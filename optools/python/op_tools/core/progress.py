# SPDX-License-Identifier: Apache-2.0
"""One line on the terminal while something takes long, erased when it is over."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

AFTER, EVERY = 3.0, 0.5  # seconds
_BAR = 10
Item = TypeVar("Item")


class Working:
    """`with Working("judging", 700) as work: work.advance()`. Nothing where standard error is no
    terminal, and nothing in the first seconds."""

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what, self._total, self._done = what, total, 0
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def advance(self) -> None:
        self._done += 1

    def __enter__(self) -> Working:
        # The stream itself: what a command prints is spelled, and a line is erased by a control.
        stream = sys.__stderr__
        if stream is not None and not stream.closed and stream.isatty():
            self._thread = threading.Thread(target=self._show, args=(stream,), daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _show(self, stream) -> None:
        begin, wait, shown = time.monotonic(), AFTER, False
        while not self._over.wait(wait):
            width = shutil.get_terminal_size().columns - 1
            stream.write("\r\x1b[K" + self.line(time.monotonic() - begin)[:width])
            stream.flush()
            wait, shown = EVERY, True
        if shown:
            stream.write("\r\x1b[K")
            stream.flush()

    def line(self, seconds: float) -> str:
        """As tqdm draws it: `judging calls:  42%|####      | 296/700 [00:12<00:17, 24.7/s]`."""
        speed = self._done / seconds if seconds > 0 else 0.0
        said = f", {speed:.1f}/s" if self._done else ""
        if not self._total:
            count = f"{self._done} " if self._done else ""
            return f"{self._what}: {count}[{_clock(seconds)}{said}]"
        share = min(self._done / self._total, 1.0)
        full = int(share * _BAR)
        bar = "#" * full + " " * (_BAR - full)
        left = _clock((self._total - self._done) / speed) if self._done else "?"
        counts = f"{self._done}/{self._total} [{_clock(seconds)}<{left}{said}]"
        return f"{self._what}: {share:4.0%}|{bar}| {counts}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes:02}:{rest:02}"


def counted(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    with Working(what, total) as work:
        for item in items:
            yield item
            work.advance()
