# SPDX-License-Identifier: Apache-2.0
"""A line on the terminal while something takes longer than a moment, erased when it is over."""

from __future__ import annotations

import sys
import threading
import time

from opennpu import words

AFTER, EVERY = 3.0, 0.5  # seconds
_MARKS = "|/-\\"


class Working:
    """`with Working("compiling"):` shows `compiling / 00:12` on standard error, where that is a
    terminal, from the fourth second on."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Working:
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
        begin, wait, shown = time.monotonic(), AFTER, 0
        while not self._over.wait(wait):
            columns = (words.width() or 80) - 1
            line = self.line(time.monotonic() - begin, shown)
            stream.write("\r\x1b[K" + words.folded(line, columns)[0])
            stream.flush()
            wait, shown = EVERY, shown + 1
        if shown:
            stream.write("\r\x1b[K")
            stream.flush()

    def line(self, seconds: float, turn: int = 0) -> str:
        minutes, rest = divmod(int(seconds), 60)
        return f"{self._what} {_MARKS[turn % len(_MARKS)]} {minutes:02}:{rest:02}"
