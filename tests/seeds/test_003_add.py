# SPDX-License-Identifier: Apache-2.0
"""seeds/003, "verifying the API": the guide's test_add.py, byte for byte, run as it says."""

import interpreter
import os
import subprocess
import sys
from pathlib import Path

import pytest

PRINTED = Path(__file__).with_name("003_test_add.txt").read_text(encoding="utf-8")


def run(tmp_path, code, **variables):
    (tmp_path / "test_add.py").write_text(code, encoding="utf-8")
    return interpreter.run(
        ["test_add.py"],
        cwd=tmp_path,
        env={**os.environ, **variables},
        timeout=300,
    )


# Before the 910B private formats are what tensors really have.
@pytest.mark.parametrize("name", ["Ascend910B1", "Ascend910A"])
def test_as_printed(tmp_path, name):
    done = run(tmp_path, PRINTED, NPU_DEVICE_NAME=name)
    assert done.returncode == 0, done.stderr
    assert "Ran 1 test" in done.stderr and done.stderr.rstrip().endswith("OK")


def test_with_the_variables_of_a_toolkit(tmp_path):
    """Step 1 of the guide: what Ascend's set_env.sh exports does no harm where there is no toolkit."""
    home = "/usr/local/Ascend/ascend-toolkit/latest"
    done = run(
        tmp_path, PRINTED, ASCEND_TOOLKIT_HOME=home, ASCEND_HOME_PATH=home, ASCEND_AICPU_PATH=home,
        ASCEND_OPP_PATH=f"{home}/opp", TOOLCHAIN_HOME=f"{home}/toolkit",
        LD_LIBRARY_PATH=f"{home}/lib64:{home}/lib64/plugin/opskernel", PYTHONPATH=f"{home}/python/site-packages",
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr.rstrip().endswith("OK"), done.stderr


def test_it_can_fail(tmp_path):
    wrong = PRINTED.replace(
        "output = torch.add(input1, input2, alpha = 1)\n        output = output.to",
        "output = torch.add(input1, input2, alpha = 2)\n        output = output.to",
    )
    assert wrong != PRINTED
    done = run(tmp_path, wrong)
    assert done.returncode == 1 and "AssertionError" in done.stderr
