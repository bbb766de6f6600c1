# SPDX-License-Identifier: Apache-2.0
"""Operators by a regular expression, as the command line gives them."""

from __future__ import annotations

import re


class OperatorPattern:
    """Matches the whole name, with or without its overload; no text matches every name."""

    def __init__(self, text: str | None) -> None:
        try:
            self._pattern = re.compile(text) if text else None
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"{text!r} is no regular expression: {error}") from None

    def matches(self, name: str) -> bool:
        if self._pattern is None:
            return True
        plain = name.split(".")[0] if "::" in name else name
        return bool(self._pattern.fullmatch(name) or self._pattern.fullmatch(plain))
