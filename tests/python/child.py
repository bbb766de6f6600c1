# SPDX-License-Identifier: Apache-2.0
"""A script in a process of its own: for environments, forks, exits and crashes."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))  # for children that import a test file
import interpreter


def start_child(code, *args, exact=False, **env):
    arguments = ["-c", textwrap.dedent(code), *args]
    return interpreter.start(arguments, env={**os.environ, **env}, exact=exact)


def run_child(code, *args, timeout=180, exact=False, **env):
    """What the script printed; fails with its stderr when it does not exit with 0."""
    arguments = ["-c", textwrap.dedent(code), *args]
    try:
        done = interpreter.run(arguments, env={**os.environ, **env}, timeout=timeout, exact=exact)
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"the child hangs\n{error.stdout}\n{error.stderr}") from None
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
