# SPDX-License-Identifier: Apache-2.0
"""Names of the threads that have called operators, by the number the tools give them."""

from __future__ import annotations

import os
import threading

from op_tools.core import _C


def names() -> dict[int, str]:
    """Python's name of a thread that lives, the system's (`pt_autograd_0`) of any other that has
    one of its own; `main` is the first of the process."""
    alive = {thread.native_id: thread.name for thread in threading.enumerate()}
    own = next((name for _, native, name in _C.threads() if native == os.getpid()), "")
    found: dict[int, str] = {}
    latest = {native: number for number, native, _ in _C.threads()}  # system numbers come again
    for number, native, name in _C.threads():
        if native == os.getpid():
            found[number] = "main"
        elif native in alive and latest[native] == number:
            found[number] = alive[native]
        elif name and name != own:
            found[number] = name
        else:
            found[number] = f"thread {number}"
    return found
