# SPDX-License-Identifier: Apache-2.0
"""Work on files of others, in a process of its own: an operator that crashes is an answer too.

    with untrusted_worker.worker("replay", settings, timeout=600) as worker:
        reply = worker.ask(request)      # raises Died where the process did not live to answer

A damaged file can hand a kernel of PyTorch's what it never expected. The process is started at the
first request, serves all of them, and is started again after it died. It opens files by itself:
requests and replies are lines of JSON, never pickles. What it prints is printed here, in order;
its standard error is ours. `untrusted_worker_main.py` is the other end.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import importlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from op_tools.core.errors import CaptureError

TIMEOUT = 600.0  # seconds a request may take
# Whose `work(settings)` is a context that gives answer(request, begin).
TASKS = {
    "import": "op_tools.cli.import_command",
    "judge": "op_tools.captures.judging",
    "replay": "op_tools.cli.replay_command",
    "run": "op_tools.cli.run_op_from_data",
}
_CODE = "import sys; sys.path[:] = {path!r}; from op_tools.core.untrusted_worker_main import main; main()"


class Died(RuntimeError):
    """The process ended inside a request; `begun` is what it had said of it last."""

    def __init__(self, why: str, begun: dict | None) -> None:
        super().__init__(why)
        self.begun = begun


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT,
        metavar="SECONDS",
        help=f"give up a call that takes longer ({TIMEOUT:g}; 0: never)",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="run operators in this process: faster to start, and a crash of one ends everything",
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, 0 or more")
    return value


def worker(task: str, settings: dict, flags: argparse.Namespace) -> Here | Apart:
    """As the flags ask for it."""
    return Here(task, settings) if flags.in_process else Apart(task, settings, flags.timeout)


def walk(worker: Here | Apart) -> Iterator[dict]:
    """Every case of a task that walks: its replies, and `died` (why) of cases without one."""
    at = 0
    while True:
        try:
            reply = worker.ask({"at": at})
        except Died as died:
            if died.begun is None:
                raise
            reply = {**died.begun, "died": str(died)}
        if reply is None:
            return
        yield reply
        at = reply["at"] + 1


def begin_task(task: str, settings: dict) -> contextlib.AbstractContextManager[Callable]:
    return importlib.import_module(TASKS[task]).work(settings)


# What JSON has no word for.
def encode(value: object) -> bytes:
    return json.dumps(value, default=_complex).encode() + b"\n"


def decode(line: bytes) -> object:
    return json.loads(line, object_hook=_from_complex)


def _complex(value: object) -> dict:
    if not isinstance(value, complex):
        raise TypeError(f"a {type(value).__name__} is not for another process")
    return {"complex": [value.real, value.imag]}


def _from_complex(held: dict) -> object:
    return complex(*held["complex"]) if held.keys() == {"complex"} else held


class Here:
    """The same in this process."""

    def __init__(self, task: str, settings: dict) -> None:
        self._task = begin_task(task, settings)

    def __enter__(self) -> Here:
        self._answer = self._task.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._task.__exit__(*error)

    def ask(self, request: dict) -> object:
        return self._answer(request, lambda begun: None)


class Apart:
    """A process that is asked. `timeout`: seconds for one request, 0 for any number of them."""

    def __init__(self, task: str, settings: dict, timeout: float = TIMEOUT) -> None:
        self._first = {"task": task, "settings": settings}
        self._timeout = timeout
        self._what = "reader" if task == "import" else "operator"
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, kind: object, *rest: object) -> None:
        if self._process is None:
            return
        if kind is None:
            with contextlib.suppress(_Late):  # null: no more requests
                self._send(None)
                while self._message(self._deadline()) is not None:
                    pass
        self._end()

    def ask(self, request: dict) -> object:
        if self._process is None:
            self._start()
        begun = None
        self._send(request)
        deadline = self._deadline()
        while True:
            try:
                message = self._message(deadline)
            except _Late:
                self._end()
                why = f"the {self._what} did not end within {self._timeout:g} s (--timeout)"
                raise Died(why, begun) from None
            if message is None:
                raise Died(self._cause(self._end(of_itself=True)), begun)
            if "begin" not in message:
                break
            begun, deadline = message["begin"], self._deadline()
        if "failed" in message:
            self._end()
            raise CaptureError(message["failed"])
        return message["reply"]

    # ---- the process ---------------------------------------------------------------
    def _start(self) -> None:
        replies, theirs = os.pipe()
        try:
            code = _CODE.format(path=[path for path in sys.path if isinstance(path, str)])
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[theirs],
            )
        except BaseException:
            os.close(replies)
            raise
        finally:
            os.close(theirs)
        self._replies, self._printed = replies, self._process.stdout.fileno()
        os.set_blocking(self._printed, False)
        self._held = b""
        self._text = codecs.getincrementaldecoder("utf-8")("replace")
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._replies, selectors.EVENT_READ)
        self._selector.register(self._printed, selectors.EVENT_READ)
        self._send(self._first)
        ready = self._message(None)
        if ready is None or "failed" in ready:
            code = self._end(of_itself=True)
            said = ready["failed"] if ready else f"exit code {code}"
            raise CaptureError(f"the process that runs operators could not start: {said}")

    def _end(self, of_itself: bool = False) -> int:
        """Its exit code. Unless it ends `of_itself` it is made to."""
        process, self._process = self._process, None
        if not of_itself:
            process.kill()
        code = process.wait()
        self._pass_on()
        self._selector.close()
        os.close(self._replies)
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        return code

    def _cause(self, code: int) -> str:
        if code < 0:
            return f"the {self._what} crashed the process (signal {-code})"
        return f"the {self._what} ended the process (exit code {code})"

    # ---- lines ---------------------------------------------------------------------
    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # it died: that is read where its reply would be
            self._process.stdin.write(encode(message))

    def _deadline(self) -> float | None:
        return time.monotonic() + self._timeout if self._timeout else None

    def _message(self, deadline: float | None) -> dict | None:
        """None where it has ended."""
        while b"\n" not in self._held:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            ready = [key.fd for key, _ in self._selector.select(left)]
            if not ready:
                raise _Late
            if self._printed in ready:
                self._pass_on()
            if self._replies in ready:
                more = os.read(self._replies, 1 << 16)
                if not more:
                    return None
                self._held += more
        self._pass_on()  # printed before this message
        line, _, self._held = self._held.partition(b"\n")
        return decode(line)

    def _pass_on(self) -> None:
        """What it printed, as far as it is here."""
        with contextlib.suppress(BlockingIOError):
            while self._printed in self._selector.get_map():
                more = os.read(self._printed, 1 << 16)
                if not more:
                    self._selector.unregister(self._printed)
                sys.stdout.write(self._text.decode(more, final=not more))


class _Late(Exception):
    """The time of a request is over."""
