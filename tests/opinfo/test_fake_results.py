# SPDX-License-Identifier: Apache-2.0
"""Results have the dtype, sizes, strides and offset that fake kernels promise torch.compile, over all of OpInfo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests/python")]

# `make test-full` sets it: every sample and dtype.
FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
QUICK = ["--quick", "--dtype", "float32", "--dtype", "bfloat16"]
# Fewer would mean that the sweep lost its way.
LEAST = 10000


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["fast", "all", "discrete"])
def test_results_are_as_fake_kernels_say(driver):
    from faulty import built_driver

    env = dict(os.environ)
    command = [sys.executable, str(HERE / "fake_results.py"), "--workers", "2"]
    command += [] if FULL else QUICK
    if driver == "discrete":
        env["NPU_DRIVER"] = built_driver("discrete")
        command += ["--kernels", "all"]
    else:
        command += ["--kernels", driver]
    run = subprocess.run(command, capture_output=True, text=True, env=env)
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
    compared = int(run.stdout.split(" calls compared")[0].split()[-1])
    assert compared > LEAST, run.stdout


def test_a_result_unlike_its_fake_is_noticed():
    import fake_results
    import torch

    fake = torch.ones(2, 3)
    assert fake_results.differences(torch.zeros(2, 3), fake) == []
    for fact, real in (
        ("dtype", torch.ones(2, 3, dtype=torch.float64)),
        ("sizes", torch.ones(2, 4)),
        ("strides", torch.ones(3, 2).t()),
        ("offset", torch.ones(3, 3)[1:]),
        ("kind", 3),
    ):
        assert fact in dict(fake_results.differences(real, fake)), fact
    assert dict(fake_results.differences([fake], [fake, fake])).keys() == {"count"}
    # A dimension of one element has no stride that matters.
    assert fake_results.differences(torch.ones(1, 3).t(), torch.ones(3, 1)) == []


def test_the_list_is_about_operators_that_exist_and_says_why():
    import sweep
    import torch
    import yaml

    for row in yaml.safe_load((HERE / "fake_results.yaml").read_text()):
        assert row["reason"]
        for name in sweep.listed(row["op"]):
            plain, _, overload = name.partition("::")[2].partition(".")
            assert hasattr(getattr(torch.ops.aten, plain), overload or "default"), name
