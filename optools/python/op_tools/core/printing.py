# SPDX-License-Identifier: Apache-2.0
"""The short lines tools print."""

from __future__ import annotations

import contextlib
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import TextIO

from op_tools.core import location
from op_tools.core.language import columns


def printable(text: str) -> str:
    """Text out of a file, for a line of a terminal: what is no visible character is spelled."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class _Spelling:
    """A text stream that spells control characters but the end of a line. `columns`: lines that are
    longer go on in the next one, under the line's beginning."""

    def __init__(self, stream: TextIO, columns: int | None = None) -> None:
        self._stream, self._columns, self._rest = stream, columns, ""

    def write(self, text: str) -> int:
        lines = [printable(line) for line in text.split("\n")]
        if self._columns is None:
            self._stream.write("\n".join(lines))
            return len(text)
        lines[0] = self._rest + lines[0]
        self._rest = lines.pop()
        for line in lines:
            self._stream.write("\n".join(self._folded(line)) + "\n")
        return len(text)

    def _folded(self, line: str) -> list[str]:
        if len(line) <= self._columns:
            return [line]
        indent = " " * min(len(line) - len(line.lstrip(" ")) + 4, self._columns // 2)
        return textwrap.wrap(
            line, self._columns, subsequent_indent=indent, replace_whitespace=False,
            break_on_hyphens=False,
        )  # fmt: skip

    def flush(self) -> None:
        rest, self._rest = self._rest, ""
        self._stream.write(rest)
        self._stream.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


@contextlib.contextmanager
def spelled_output() -> Iterator[None]:
    """What is printed inside may come from files of others: no escape sequence gets through. A
    terminal without a character gets its number."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.reconfigure(errors="backslashreplace")
    with (
        contextlib.redirect_stdout(_Spelling(sys.stdout, columns())) as out,
        contextlib.redirect_stderr(_Spelling(sys.stderr)),
    ):
        try:
            yield
        finally:
            out.flush()


def describe_tensors(entries: list[dict], most: int = 6) -> str:
    shown = [
        "opaque" if e["opaque"] else f"{e['dtype']}{list(e['shape'])}".replace(" ", "")
        for e in entries[:most]
    ]
    more = [f"... {len(entries)} in all"] if len(entries) > most else []
    return "(" + ", ".join(shown + more) + ")"


def place_of(call: dict) -> list[str]:
    """Where a call was made, as far as that is known."""
    where = [f"call {call['number']}, {call['phase']}, step {call['step']}"]
    if call["module"]:
        where.append(f"module {call['module']}")
    if call["api"]:
        where.append(call["api"])
    if call["site"]:
        where.append(location(call["site"]))
    return where


def many(count: int, what: str) -> str:
    """1 call, 2 calls."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def print_reasons(tool: str, what: str, did: str, reasons: Iterable[tuple[str, int]]) -> None:
    """`<tool>: <count> <what>s <did>: <why>`, the most frequent first."""
    counts: dict[str, int] = {}
    for why, count in reasons:
        counts[why] = counts.get(why, 0) + count
    for why, count in sorted(counts.items(), key=lambda item: -item[1]):
        print(f"{tool}: {many(count, what)} {did}: {why}")


def print_counted(tool: str, did: str, counts: list[tuple[str, str, int]]) -> None:
    acted = sorted((-count, op) for op, why, count in counts if not why)
    for count, op in acted:
        print(f"{tool}: {op:<44} {many(-count, 'call')} {did}")
    print_reasons(tool, "call", "let pass", ((why, count) for _, why, count in counts if why))
    total = -sum(count for count, _ in acted)
    print(f"{tool}: {many(len(acted), 'operator')}, {many(total, 'call')} {did}")
