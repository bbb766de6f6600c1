# SPDX-License-Identifier: Apache-2.0
"""Mixed precision; apex is the one of this tree, installed or not."""

import os
import sys
from pathlib import Path

import interpreter
import pytest
import torch_npu  # noqa: F401

APEX = str(Path(__file__).resolve().parents[2] / "compat" / "apex")
sys.path.insert(0, APEX)

# Every call waits 3 ms in its stream's queue: a read of a number from the device waits for all of them.
SLOW_DEVICE = {"NPU_HOST_ASYNC": "1", "NPU_HOST_DELAY_US": "3000", "PYTHONPATH": APEX}


@pytest.fixture
def run_on_slow_device(tmp_path):
    def run(code):
        done = interpreter.run(
            ["-c", code], cwd=tmp_path, env={**os.environ, **SLOW_DEVICE}, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run
