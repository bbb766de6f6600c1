# SPDX-License-Identifier: Apache-2.0
"""A script in a process of its own: for environments, forks, exits and crashes."""

import os
import subprocess
import sys
import textwrap


def start_child(code, *args, **env):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *args],
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_child(code, *args, timeout=180, **env):
    """What the script printed; fails with its stderr when it does not exit with 0."""
    process = start_child(code, *args, **env)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the child hangs\n{out}\n{err}") from None
    assert process.returncode == 0, f"exit {process.returncode}\n{out}\n{err}"
    return out
