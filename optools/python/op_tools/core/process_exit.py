# SPDX-License-Identifier: Apache-2.0
"""The end of the process: a tool stopped only then can still make it fail."""

from __future__ import annotations

import os
import sys

from op_tools.core import _C

# Set by op_tools.tool once the program is through.
now = False


def fail() -> None:
    """The process is to end with exit code 1: after every other handler ran and every file was
    closed, where Python has room for one more function to call then (it has 32)."""
    if not _C.fail_process():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
