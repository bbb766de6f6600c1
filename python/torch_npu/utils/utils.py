# SPDX-License-Identifier: Apache-2.0
"""Lines for people: time, process, level and text."""

import os
import time

__all__ = ["print_error_log", "print_info_log", "print_warn_log"]


def _print(level: str, message: str) -> None:
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{now}({os.getpid()})-[{level}] {message}", flush=True)


def print_info_log(message: str) -> None:
    _print("INFO", message)


def print_warn_log(message: str) -> None:
    _print("WARNING", message)


def print_error_log(message: str) -> None:
    _print("ERROR", message)
