# SPDX-License-Identifier: Apache-2.0
"""With a driver of one's own no chip is imitated: warnings, reports and explain speak of that driver."""

import os
import subprocess
import sys

import pytest
from faulty import built_driver

HEAD = "import torch, torch_npu\n"


def explain(subject, **env):
    done = subprocess.run(
        [sys.executable, "-m", "opennpu", "explain", subject, "--lang", env.pop("lang", "en")],
        env={**os.environ, **env}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_default_profile_belongs_to_the_host_driver(run_python):
    code = HEAD + "print(torch_npu._C._profile_name(), '|', torch_npu._C._profile_info())"
    host, null, chosen = (
        run_python(code, **env).stdout.strip()
        for env in ({}, {"NPU_DRIVER": "null"}, {"NPU_DRIVER": "null", "NPU_PROFILE": "ascend910b"})
    )
    assert host.startswith("ascend910b |") and chosen.startswith("ascend910b |")
    assert null == "none | none: what driver null has is native, policy warn"


def test_what_the_driver_lacks_is_warned_about_and_reported(run_python):
    code = HEAD + "x = torch.ones(3, device='npu')\nx + x\nprint(torch.npu.fallback_report())\n"
    code += "print([row['overload'] for row in torch.npu.fallback_stats()])\n"
    code += (
        "y = torch.ones(2, 3, 4, 5, device='npu').contiguous(memory_format=torch.channels_last)\n"
    )
    code += "assert torch.npu.profile_gaps() == []"
    done = run_python(code, NPU_DRIVER="null")
    assert "CAUTION: The operator 'aten::add.out' is not currently supported" in done.stderr
    assert "on driver null" in done.stdout and "aten::add" in done.stdout


def test_explain_speaks_of_the_driver():
    lacks = explain("aten::add.Tensor", NPU_DRIVER="null")
    assert "driver null" in lacks and "no kernel" in lacks and "ascend910b" not in lacks
    assert "on the same bytes" in lacks
    discrete = built_driver("discrete")
    assert "on copies" in explain("aten::erf.out", NPU_DRIVER=discrete)
    has = explain("aten::mm.out", NPU_DRIVER=discrete)
    assert "driver discrete" in has and "no warning" in has, has
    chinese = explain("aten::add.Tensor", NPU_DRIVER="null", lang="zh")
    assert "驱动 null" in chinese


@pytest.mark.parametrize("subject", ["aten::view", "aten::matmul"])
def test_what_is_made_of_other_operators_is_no_fallback(subject):
    assert "no warning" in explain(subject, NPU_DRIVER="null")


def test_a_profile_that_was_asked_for_is_obeyed():
    text = explain("aten::linalg_lstsq", NPU_DRIVER="null", NPU_PROFILE="ascend910b")
    assert "ascend910b" in text
