# SPDX-License-Identifier: Apache-2.0
"""A recorded trace as a test reads it, and processes of their own."""

import os
import sys
import textwrap
from pathlib import Path

import interpreter
import pytest
import torch_npu

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "python"))


@pytest.fixture
def run_code(tmp_path):
    """Runs `code` in a process of its own in an empty folder; keywords are variables."""

    def run(code: str, check: bool = True, **variables):
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        env.update(KINETO_LOG_LEVEL="99", **variables)
        text = f"import sys; sys.path.insert(0, {str(HERE)!r})\n" + textwrap.dedent(code)
        done = interpreter.run(["-c", text], cwd=tmp_path, env=env, timeout=120)
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(autouse=True)
def nothing_is_left_on():
    """Whatever a test does, no listener is left afterwards."""
    yield
    assert torch_npu._C._watched_for() & 1 == 0
