# SPDX-License-Identifier: Apache-2.0
"""torch_npu's error codes for Python code: the line that ends an exception's text."""

import os
import sys
import time
from enum import Enum

from torch_npu import _C

_MODULES = {"PTA": 0, "OPS": 1, "DIST": 2, "GRAPH": 3, "PROF": 4}


class ErrCode(Enum):
    SUC = 0
    PARAM = 1
    TYPE = 2
    VALUE = 3
    PTR = 4
    INTERNAL = 5
    MEMORY = 6
    NOT_SUPPORT = 7
    NOT_FOUND = 8
    UNAVAIL = 9
    SYSCALL = 10
    TIMEOUT = 11
    PERMISSION = 12
    ACL = 100
    HCCL = 200
    GE = 300


def _interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def _line(module: str, code: ErrCode) -> str:
    """A new line with time, process and code; empty where users asked for short errors."""
    if not isinstance(code, ErrCode):
        raise TypeError(f"error code: expected an ErrCode, but got {code!r}")
    return "" if _interactive() else _C._error_line(_MODULES[module], code.value)


def pta_error(code: ErrCode) -> str:
    return _line("PTA", code)


def ops_error(code: ErrCode) -> str:
    return _line("OPS", code)


def dist_error(code: ErrCode) -> str:
    return _line("DIST", code)


def graph_error(code: ErrCode) -> str:
    return _line("GRAPH", code)


def prof_error(code: ErrCode) -> str:
    return _line("PROF", code)


def unknown_error_line() -> str:
    """Printed after an uncaught exception that carries no code; spelt as torch_npu spells it."""
    now = time.strftime("%Y-%m-%d-%H:%M:%S")
    place = f"PID:{os.getpid()}, Device:{_C._get_device()}, RankID:{os.environ.get('RANK', -1)}"
    return f"[ERROR] {now} ({place}) ERR99999 UNKNOWN applicaiton exception"
