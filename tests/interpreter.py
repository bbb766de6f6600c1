# SPDX-License-Identifier: Apache-2.0
"""Python scripts in a process of their own, for environments, exits and crashes.

`start` and `run` take what follows `python` on a command line. They fork a process that has imported torch
already (template_process.py) instead of starting an interpreter, unless a variable is given that torch or
Python reads when it is loaded; `exact=True` always starts one.
"""

import array
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

# Read when Python, torch or a library of theirs is loaded: a fork of a loaded process would not see them.
AT_LOAD = ("PYTHON", "LD_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_", "ONEDNN_", "DNNL_", "ATEN_", "CUDA_",
           "TORCH_LOGS", "TORCH_SHOW", "TORCH_TRACE", "PYTORCH_JIT", "ASAN_", "TSAN_", "UBSAN_")  # fmt: skip
START = "import sys; sys.path[0] = {0!r}; import template_process; template_process.main({1})"


class Template:
    """The process that is forked, one for each process that asks; `env`: what it reads at its start."""

    def __init__(self, env=None):
        ours, theirs = socket.socketpair()
        self.environment = {**(env or os.environ), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", START.format(str(Path(__file__).parent), theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=self.environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self.owner, self.connection = os.getpid(), ours
        self.lines = ours.makefile("r")
        self.lock, self.ended = threading.Lock(), {}
        self.started = threading.Semaphore(0)
        self.new_pids = []
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.lines:
            pid, what = line.split()
            if what == "started":
                self.new_pids.append(int(pid))
                self.started.release()
            else:
                self.event(int(pid)).set_status(int(what))

    def event(self, pid):
        return self.ended.setdefault(pid, Ended())

    def fork(self, request, files):
        body = json.dumps(request).encode()
        with self.lock:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))]
            self.connection.sendmsg([len(body).to_bytes(8, "little")], rights)
            self.connection.sendall(body)
            self.started.acquire()
            return self.new_pids.pop()

    def suits(self, env):
        """Whether a fork of it behaves as an interpreter started with `env` would."""
        names = {n for n in {*env, *self.environment} if n.startswith(AT_LOAD)} - {"PYTHONPATH"}
        return self.process.poll() is None and all(
            env.get(n) == self.environment.get(n) for n in names
        )


class Ended(threading.Event):
    def set_status(self, status):
        self.returncode = os.waitstatus_to_exitcode(status)
        self.set()


_template = None


def template():
    global _template
    if _template is None or _template.owner != os.getpid():
        _template = Template()
        atexit.register(_template.connection.close)
    return _template


class Fork:
    """What subprocess.Popen is for a process that it started, with the same names."""

    def __init__(self, arguments, env, cwd):
        self.args, self.returncode = [sys.executable, *arguments], None
        pipes = [os.pipe() for _ in range(2)]
        nothing = os.open(os.devnull, os.O_RDONLY)
        self.pid = template().fork(
            request_of(arguments, env, cwd), [nothing, pipes[0][1], pipes[1][1]]
        )
        for file in (nothing, pipes[0][1], pipes[1][1]):
            os.close(file)
        self._ended = template().event(self.pid)
        self.stdout, self.stderr = (open(r, errors="replace") for r, _ in pipes)  # noqa: SIM115

    def poll(self):
        if self.returncode is None and self._ended.is_set():
            self.returncode = self._ended.returncode
        return self.returncode

    def wait(self, timeout=None):
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.poll()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def communicate(self, timeout=None):
        if not hasattr(self, "_readers"):
            self._texts = {}
            self._readers = [
                threading.Thread(target=self._read, args=(name,), daemon=True)
                for name in ("stdout", "stderr")
            ]
            for reader in self._readers:
                reader.start()
        end = None if timeout is None else time.monotonic() + timeout
        for reader in self._readers:
            reader.join(None if end is None else max(0.0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        return self._texts["stdout"], self._texts["stderr"]

    def _read(self, name):
        with getattr(self, name) as file:
            self._texts[name] = file.read()


def request_of(arguments, env, cwd):
    first, *rest = map(str, arguments)
    cwd = os.fspath(cwd or os.getcwd())
    request = {"env": env, "cwd": cwd, "module": None, "code": None, "file": "<string>"}
    if first == "-c":
        return {**request, "code": rest[0], "argv": ["-c", *rest[1:]], "path0": ""}
    if first == "-m":
        return {**request, "module": rest[0], "argv": ["-m", *rest[1:]], "path0": cwd}
    script = Path(cwd, first)
    return {
        **request, "code": script.read_text(), "file": first, "argv": [first, *rest],
        "path0": str(script.resolve().parent),
    }  # fmt: skip


def start(arguments, *, env=None, cwd=None, exact=False):
    """A running process with the methods of Popen; its output is text in pipes, its input empty."""
    env = dict(os.environ if env is None else env)
    forks = not exact and not str(arguments[0]).startswith("-X") and template().suits(env)
    if forks:
        return Fork(arguments, env, cwd)
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(arguments, *, env=None, cwd=None, timeout=None, exact=False):
    """The subprocess.CompletedProcess of it; a process that takes longer is ended."""
    process = start(arguments, env=env, cwd=cwd, exact=exact)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise subprocess.TimeoutExpired(process.args, timeout, out, err) from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
