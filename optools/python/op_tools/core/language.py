# SPDX-License-Identifier: Apache-2.0
"""The language that commands and reports begin in, and how wide a terminal is."""

from __future__ import annotations

import os
import sys

LANGUAGES = ("en", "zh")
_asked: str | None = None


def choose(language: str | None) -> None:
    """What --lang says; None: by the environment."""
    global _asked
    _asked = language


def language() -> str:
    """By --lang, else by the variables that name a locale, whether it is installed or not."""
    if _asked is not None:
        return _asked
    names = (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))
    return "zh" if (next(filter(None, names), "")).lower().startswith("zh") else "en"


def spoken() -> str:
    """The language of messages: English if standard output cannot show Chinese and no setting
    asks for it."""
    if _asked is not None or language() == "en":
        return language()
    try:
        "\u73b0".encode(getattr(sys.stdout, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return "en"
    return language()


def columns() -> int | None:
    """How wide lines may be: by COLUMNS, else the terminal's; None where a program reads."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return max(int(asked), 20)
    try:
        return max(os.get_terminal_size(sys.__stdout__.fileno()).columns, 20)
    except (AttributeError, OSError, ValueError):
        return None
