# SPDX-License-Identifier: Apache-2.0
"""The process that runs operators for `untrusted_worker.py`: a request a line, an answer a line."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading

from op_tools.core import untrusted_worker
from op_tools.core.printing import spelled_output


def main() -> None:
    _go_first()
    with spelled_output():
        _serve()


def _go_first() -> None:
    """Where the machine's memory ends, this process does, before any other."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")


def _serve() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C: the parent ends this process
    replies = int(sys.argv[1])
    os.set_inheritable(replies, False)  # its end is told from ours
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    requests: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()

    def tell(**message: object) -> None:
        sys.stdout.flush()
        line = untrusted_worker.encode(message)
        while line:
            line = line[os.write(replies, line) :]

    try:
        first = requests.get()
        with untrusted_worker.begin_task(first["task"], first["settings"]) as answer:
            tell(reply="ready")
            while (request := requests.get()) is not None:
                tell(reply=answer(request, lambda begun: tell(begin=begun)))
    except (untrusted_worker.CaptureError, OSError, ValueError) as error:
        tell(failed=str(error))


def _read(requests: queue.SimpleQueue) -> None:
    """Ends the process when the parent is gone, even in a call that hangs."""
    for line in sys.stdin.buffer:
        request = untrusted_worker.decode(line)
        requests.put(request)
        if request is None:
            return
    os._exit(1)
