# SPDX-License-Identifier: Apache-2.0
"""What happens when the program ends: a quiet device, and torch_npu's last line."""

import atexit
import os
import sys

from torch_npu import _C


def install() -> None:
    atexit.register(_C._prepare_exit)
    _wrap_excepthook()


def _wrap_excepthook() -> None:
    shown = sys.excepthook

    def excepthook(kind, value, traceback):
        shown(kind, value, traceback)
        if _wants_code(kind, value):
            from torch_npu.utils._error_code import unknown_error_line

            print(unknown_error_line(), file=sys.stderr)

    sys.excepthook = excepthook


def _wants_code(kind, value) -> bool:
    """Only programs that used the device get the line, and only one of them."""
    return (
        _C._is_initialized()
        and not issubclass(kind, KeyboardInterrupt)
        and os.environ.get("TORCH_NPU_COMPACT_ERROR_OUTPUT") != "1"
        and "[ERROR]" not in str(value)
    )
