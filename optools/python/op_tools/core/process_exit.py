# SPDX-License-Identifier: Apache-2.0
"""The end of the process: a tool stopped only then can still make it fail."""

from __future__ import annotations

import atexit
import os
import sys

# Set by op_tools.tool once the program is through.
now = False
_failed = False


def fail() -> None:
    """The process is to end with exit code 1."""
    global _failed
    _failed = True


@atexit.register  # before op_tools.tool's, so it runs after it
def _leave() -> None:
    if _failed:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
