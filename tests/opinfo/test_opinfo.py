# SPDX-License-Identifier: Apache-2.0
"""The whole OpInfo database; and that the sweep notices what it is there to notice."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.mark.slow
def test_every_operator_answers_what_the_cpu_answers():
    command = [sys.executable, str(HERE / "sweep.py"), "--workers", "2"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=3000)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
    least = {"forward": 40000, "gradient": 25000, "inplace": 600, "out": 5000}
    for mode, samples in least.items():
        found = re.search(rf"^{mode}: \d+ cases, (\d+) samples compared$", run.stdout, re.M)
        assert found and int(found[1]) > samples, run.stdout


def test_a_wrong_result_is_noticed():
    import cases
    import torch
    import torch_npu  # noqa: F401

    right = torch.tensor([1.0, 2.0])
    with pytest.raises(cases.Mismatch, match="differs"):
        cases.check(right, torch.tensor([1.0, 2.0000002], device="npu"), "x")
    with pytest.raises(cases.Mismatch, match="strides"):
        cases.check(torch.ones(2, 3), torch.ones(3, 2, device="npu").t(), "x")
    with pytest.raises(cases.Mismatch, match="is on cpu"):
        cases.check(right, right, "x")
    cases.check(right, right.to("npu"), "x")


def test_a_crash_has_a_name():
    import sweep

    class Dies:
        def __getattr__(self, name):
            import os
            import signal

            os.kill(os.getpid(), signal.SIGSEGV)

    rows = sweep.sweep([("dies", Dies())], workers=1, most=0)
    assert rows[0]["op"] == "dies"
    assert "SIGSEGV" in rows[0]["failure"]
