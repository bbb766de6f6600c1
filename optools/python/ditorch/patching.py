# SPDX-License-Identifier: Apache-2.0
"""Replacing attributes, and putting them back."""

from __future__ import annotations

import functools
from collections.abc import Callable

_MISSING = object()


class Patches:
    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        # From the owner itself: what it inherits comes back by deleting.
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)

        def back() -> None:
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        self._undo.append(back)

    def wrap(self, owner: object, name: str, make: Callable[[Callable], Callable]) -> None:
        """make(original) takes the original's place, with its name and documentation."""
        original = getattr(owner, name, None)
        if original is not None:
            self.set(owner, name, functools.wraps(original)(make(original)))

    def on_undo(self, action: Callable[[], None]) -> None:
        self._undo.append(action)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()
