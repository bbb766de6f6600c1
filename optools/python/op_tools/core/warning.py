# SPDX-License-Identifier: Apache-2.0
"""Warnings that point at the user's line, however deep in the tools they are found."""

from __future__ import annotations

import os
import sys
import warnings

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_OURS = (_HERE + os.sep, os.path.join(os.path.dirname(_HERE), "ditorch") + os.sep)
_IMPORTING = "<frozen importlib"


def warn(text: str) -> None:
    """At the innermost line that is not ours."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    names = frame.f_globals
    warnings.warn_explicit(
        text,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        names.get("__name__", "?"),
        names.setdefault("__warningregistry__", {}),
    )


def _is_ours(file: str) -> bool:
    return file.startswith(_IMPORTING) or os.path.abspath(file).startswith(_OURS)
