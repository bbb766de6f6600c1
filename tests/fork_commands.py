# SPDX-License-Identifier: Apache-2.0
"""`python` for shell scripts that call it often: each call is a fork of a process that has imported torch.

What is not a script, a module or `-c`, and an environment that torch reads when it is loaded, gets a real
interpreter, as in interpreter.py. A fork ends with the command that asked for it, and the other way round.
"""

import contextlib
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

from interpreter import Template, request_of
from template_process import receive

CLIENT = Path(__file__).with_name("fork_client.py")


class Commands:
    def __init__(self, env: dict[str, str]) -> None:
        self.template = Template(env)
        # Of its own: the path of a socket may have 107 characters, and a test's folder has most of them.
        self.folder = Path(tempfile.mkdtemp(prefix="forks-"))
        self.place = self.folder / "socket"
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(self.place))
        self.server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def write(self, path: Path, *arguments: str) -> None:
        """A command that is `python ARGUMENT... "$@"`."""
        client = f'"{sys.executable}" -ISB "{CLIENT}" "{self.place}"'
        path.write_text(f'#!/bin/sh\nexec {client} {" ".join(arguments)} "$@"\n')
        path.chmod(0o755)

    def close(self) -> None:
        self.server.close()
        self.template.connection.shutdown(socket.SHUT_RDWR)  # which ends the process
        self.template.process.wait()
        shutil.rmtree(self.folder)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            asked, files = receive(connection)
            try:
                answer = self._run(asked, files, connection)
            finally:
                for file in files:
                    os.close(file)
            with contextlib.suppress(BrokenPipeError):  # the command was killed
                connection.sendall(f"{answer}\n".encode())

    def _run(self, asked: dict, files: list[int], connection: socket.socket) -> object:
        arguments, env = asked["arguments"], asked["env"]
        plain = arguments and (arguments[0] in ("-c", "-m") or arguments[0].endswith(".py"))
        missing = (
            plain
            and arguments[0].endswith(".py")
            and not Path(asked["cwd"], arguments[0]).is_file()
        )
        if not plain or missing or not self.template.suits(env):
            return "start it"
        pid = self.template.fork(request_of(arguments, env, asked["cwd"]), files)
        ended = self.template.event(pid)
        while not ended.wait(0.02):
            if select.select([connection], [], [], 0)[0]:  # the command is gone
                os.kill(pid, signal.SIGKILL)
                ended.wait()
        return ended.returncode


@contextlib.contextmanager
def python_command(folder: Path):
    """The path of a command `python` in the folder, with the environment of this process."""
    commands = Commands(dict(os.environ))
    commands.write(folder / "python")
    try:
        yield str(folder / "python")
    finally:
        commands.close()
