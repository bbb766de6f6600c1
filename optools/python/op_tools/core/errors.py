# SPDX-License-Identifier: Apache-2.0
"""The error of every reader of files."""

from __future__ import annotations


class CaptureError(RuntimeError):
    """A capture, or a part of it, cannot be read; the text says what and where."""
