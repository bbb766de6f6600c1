# SPDX-License-Identifier: Apache-2.0
"""The language of messages, and the characters a terminal can show."""

from __future__ import annotations

import contextlib
import os
import sys
import unicodedata
from collections.abc import Iterator, Sequence

LANGUAGES = ("en", "zh")
_asked: str | None = None


def choose(language: str | None) -> None:
    """What --lang says; None: by the environment."""
    global _asked
    _asked = language


def language() -> str:
    """By --lang, else by the variables that name a locale, installed or not, where standard output
    can show it; else English."""
    if _asked is not None:
        return _asked
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    name = next((name for name in names if name), "")
    return "zh" if name.lower().startswith("zh") and _shows("\u73b0") else "en"


def _shows(text: str) -> bool:
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def never_fail() -> None:
    """A terminal without a character gets its number instead of a traceback."""
    for stream in (sys.stdout, sys.stderr):
        # A stream that replaced the original may not support this.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")


# ---- text in columns ----


def columns_of(text: str) -> int:
    """How wide a terminal shows it: Chinese characters take two columns."""
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1
        for c in text
    )


def _pieces(text: str) -> list[str]:
    """Where a line may be broken: after spaces, and around wide characters."""
    pieces, word = [], ""
    for c in text:
        wide = unicodedata.east_asian_width(c) in "WF"
        if wide and c not in _NOT_FIRST and word:
            pieces.append(word)
            word = ""
        word += c
        if c == " ":
            pieces.append(word)
            word = ""
    return [*pieces, word] if word else pieces


_NOT_FIRST = "，。；：、）？！"


def folded(text: str, width: int, indent: str = "") -> list[str]:
    """Lines of at most `width` columns; those after the first begin with `indent`. A word that is wider
    than a line is broken, and nothing is left out."""
    width = max(width, len(indent) + 8)
    lines, line = [], ""
    for piece in _pieces(text):
        bare = piece.rstrip(" ")
        if line.strip() and columns_of(line + bare) > width:
            lines.append(line.rstrip())
            line = indent
        while columns_of(line + bare) > width:
            room = width - columns_of(line)
            at = next((i for i in range(len(bare), 0, -1) if columns_of(bare[:i]) <= room), 1)
            lines.append(line + bare[:at])
            line, bare, piece = indent, bare[at:], piece[at:]
        line += piece
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def padded(rows: Sequence[Sequence[str]], sides: str, width: int) -> list[str]:
    """Rows as columns, `l`eft or `r`ight, two spaces apart. The last column is folded where a row is
    wider than `width`; with too little room for it, it goes to lines of its own."""
    if not rows:
        return []
    wide = [max(columns_of(row[i]) for row in rows) for i in range(len(sides) - 1)]
    room = width - sum(wide) - 2 * len(wide)
    longest = max(columns_of(row[-1]) for row in rows)
    below = room < min(longest, 24)
    lines = []
    for row in rows:
        cells = [
            " " * (w - columns_of(cell)) + cell
            if side == "r"
            else cell + " " * (w - columns_of(cell))
            for cell, w, side in zip(row, wide, sides, strict=False)
        ]
        head = "  ".join(cells)
        if below:
            lines += folded(head.rstrip(), width, "  ")
            lines += ["    " + line for line in folded(row[-1], width - 4)]
            continue
        start = " " * (sum(wide) + 2 * len(wide))
        first, *more = folded(row[-1], max(room, 8))
        lines.append(f"{head}  {first}".rstrip())
        lines += [start + line for line in more]
    return lines


# ---- the terminal ----


def width() -> int | None:
    """How many columns lines may have: by COLUMNS, else the terminal's; None where a program reads."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return max(int(asked), 20)
    try:
        return max(os.get_terminal_size(sys.__stdout__.fileno()).columns, 20)
    except (AttributeError, OSError, ValueError):
        return None


class Fitted:
    """A text stream whose lines are folded to a width; continuation lines are indented."""

    def __init__(self, stream, columns: int) -> None:
        self._stream, self._columns, self._rest = stream, columns, ""

    def write(self, text: str) -> int:
        *whole, self._rest = (self._rest + text).split("\n")
        for line in whole:
            self._stream.write("\n".join(self._lines(line)) + "\n")
        return len(text)

    def _lines(self, line: str) -> list[str]:
        bare = line.lstrip(" ")
        indent = " " * min(len(line) - len(bare) + 2, self._columns // 2)
        return folded(line, self._columns, indent) if columns_of(line) > self._columns else [line]

    def flush(self) -> None:
        rest, self._rest = self._rest, ""
        self._stream.write(rest)
        self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def fitted_output() -> Iterator[None]:
    """Folds output to the terminal's width; output to a program is unchanged."""
    columns = width()
    if columns is None:
        yield
        return
    out = Fitted(sys.stdout, columns)
    with contextlib.redirect_stdout(out):
        try:
            yield
        finally:
            out.flush()
