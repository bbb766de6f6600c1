# SPDX-License-Identifier: Apache-2.0
"""A Python process that has imported torch and waits: each request is a fork of it that runs a script.

Started by interpreter.py. `import torch` costs 2 s of CPU time, a fork of this one 10 ms. The
plugin is not loaded here: a fork reads its own environment when it imports torch_npu. A fork leaves the loop
and runs its script as __main__, so that it ends as every interpreter does: exit handlers, finalisation,
static destructors, exit status.
"""

import array
import builtins
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys

PYTHONPATH = os.environ.get("PYTHONPATH", "").split(os.pathsep)


def receive(connection):
    """(request, [stdin, stdout, stderr]), or None at the end."""
    size = array.array("i", [0, 0, 0])
    data, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_SPACE(len(size) * size.itemsize))
    if not data:
        return None
    files = array.array("i")
    for _level, _kind, payload in ancillary:
        files.frombytes(payload[: len(payload) - len(payload) % files.itemsize])
    length, body = int.from_bytes(data, "little"), b""
    while len(body) < length:
        body += connection.recv(length - len(body))
    return json.loads(body), list(files)


def serve(connection):
    """Forks once per request; returns, in the fork, the request."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    default = signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([connection, reading], [], [])
        if reading in ready:
            os.read(reading, 4096)
            try:
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    connection.sendall(f"{ended[0]} {ended[1]}\n".encode())
            except ChildProcessError:
                pass
        if connection not in ready:
            continue
        request = receive(connection)
        if request is None:
            os._exit(0)
        request, files = request
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            connection.sendall(f"{pid} started\n".encode())
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, default)
        connection.close()
        os.close(reading)
        os.close(writing)
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        return request


def become(request):
    """This process as the interpreter that the request describes."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    sys.argv = request["argv"]
    given = request["env"].get("PYTHONPATH", "").split(os.pathsep)
    given = [os.path.abspath(p) for p in given if p]  # as the module site makes them
    sys.path[:] = [request["path0"], *given, *(p for p in sys.path[1:] if p not in PYTHONPATH)]


def autoload_at_first_import(torch):
    """`import torch` in the script loads the device backends, as it does where torch is not loaded yet."""
    usual = builtins.__import__

    def first(name, *rest, **named):
        if name.partition(".")[0] == "torch":
            builtins.__import__ = usual
            torch._import_device_backends()
        return usual(name, *rest, **named)

    builtins.__import__ = first


def fresh_names(request):
    """The namespace of __main__, with what an interpreter puts there and nothing else."""
    names = vars(sys.modules["__main__"])
    for name in set(names) - {"__name__", "__builtins__", "__loader__", "__spec__", "__doc__"}:
        del names[name]
    if request["file"] != "<string>":
        names["__file__"] = request["file"]
    return names


def main(file):
    """Returns only in forks, after their script."""
    import torch

    gc.freeze()  # a collection in a fork would copy every page it looks at
    request = serve(socket.socket(fileno=file))
    become(request)
    if request["env"].get("TORCH_DEVICE_BACKEND_AUTOLOAD", "1") == "1":
        autoload_at_first_import(torch)
    if request["module"]:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    else:
        exec(compile(request["code"], request["file"], "exec"), fresh_names(request))
