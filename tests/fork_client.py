# SPDX-License-Identifier: Apache-2.0
"""What a command of fork_commands.py runs: hands its arguments, environment and streams over, and ends as the fork ends.

python -ISB fork_client.py SOCKET ARGUMENT...     imports as little as it can: it is run for every command
"""

import array
import json
import os
import socket
import sys


def main():
    place, *arguments = sys.argv[1:]
    request = {"arguments": arguments, "env": dict(os.environ), "cwd": os.getcwd()}
    body = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(place)
        streams = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))
        connection.sendmsg([len(body).to_bytes(8, "little")], [streams])
        connection.sendall(body)
        answer = connection.makefile().readline().strip()
    if answer == "start it":
        os.execv(sys.executable, [sys.executable, *arguments])
    code = int(answer)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


main()
