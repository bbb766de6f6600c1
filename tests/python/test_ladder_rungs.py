# SPDX-License-Identifier: Apache-2.0
"""The tests of the ladder again where host code cannot, or may not freely, read device memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import program

HERE = Path(__file__).resolve().parent
MODES = {
    "copies": {"NPU_HOST_ACCESS": "none"},
    "protected": {"NPU_HOST_PROTECT": "1"},
    "two_devices": {"NPU_HOST_DEVICES": "2"},
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_ladder_in_another_mode(mode):
    # Pool accounting is rung 4's alone: with copies a result passes through host memory.
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += [str(HERE / f"test_ladder{part}.py") for part in ("", "_around", "_layouts")]
    env = {**os.environ, **MODES[mode]}
    run = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]


def test_the_report_names_the_rung(run_python):
    code = """
import torch, torch_npu
x = torch.ones(3, 3, device="npu")
torch.fmax(x, x)
print([r["rung"] for r in torch.npu.fallback_stats() if r["overload"] == "aten::fmax"])
"""
    assert run_python(code, NPU_HOST_ACCESS="none").stdout.strip() == "[5]"
    assert run_python(code).stdout.strip() == "[4]"


def test_copies_leave_the_gaps_of_an_output_alone(run_python):
    code = program(__file__, "_copies_leave_the_gaps_of_an_output_alone")
    run_python(code, NPU_HOST_ACCESS="none")
