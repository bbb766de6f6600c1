# SPDX-License-Identifier: Apache-2.0
"""Every test sees the npu backend; a child process is one call away."""

import os
import sys
import textwrap
from pathlib import Path

import interpreter
import pytest
import torch
import torch_npu  # noqa: F401

sys.path.append(str(Path(__file__).resolve().parents[1] / "opinfo"))  # wide_reference


@pytest.fixture
def run_python(tmp_path, request):
    """Runs `code` in a process of its own, outside the source folder; keywords are variables."""
    exact = getattr(request.module, "EXACT_INTERPRETER", False)

    def run(code: str, check: bool = True, timeout: int = 120, **variables):
        env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        env.update(variables)
        done = interpreter.run(
            ["-c", textwrap.dedent(code)], cwd=tmp_path, env=env, timeout=timeout, exact=exact
        )
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.fixture
def two_devices():
    if torch.npu.device_count() < 2:
        pytest.skip("needs two devices: NPU_HOST_DEVICES=2")
