# SPDX-License-Identifier: Apache-2.0
"""python -m op_tools.selftest: every tool, one line each."""

import os
import re

import interpreter
import pytest
from op_tools import selftest


def run(tmp_path, autoload):
    return interpreter.run(
        ["-m", "op_tools.selftest"],
        cwd=tmp_path,
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload},
        timeout=600,
    )


def test_without_any_plugin(tmp_path):
    done = run(tmp_path, "0")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    count = len(selftest.CHECKS)
    on_cpu = [line for line in lines if re.match(r"ok    \S.* cpu   \S", line)]
    assert len(on_cpu) == count
    tools = "OpObserve OpOverflowCheck OpFallback OpDtypeCast OpTimeMeasure OpCapture OpAutoCompare"
    assert all(any(f"ok    {tool} " in line for line in on_cpu) for tool in tools.split())
    assert re.fullmatch(r"(\d+) of \1 passed", lines[-1])
    assert os.listdir(tmp_path) == []  # nothing is left behind


def test_on_the_device_too(tmp_path, accelerator):
    done = run(tmp_path, "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(rf"^ok    .* {accelerator}", done.stdout, re.M)) == len(selftest.CHECKS)


def test_a_failure_is_told(capsys):
    def broken(device):
        selftest.check(device == "moon", "not on the moon")

    assert selftest.run("Broken", broken, "cpu") is False
    assert (
        "FAIL  Broken             cpu   AssertionError: not on the moon" in capsys.readouterr().out
    )


@pytest.mark.parametrize(
    "command, words",
    [
        (["-m", "op_tools.selftest", "--help"], "usage: python -m op_tools.selftest"),
        (["-m", "op_tools.selftest", "--version"], "op_tools "),
        (["-m", "op_tools", "--version"], "op-tools "),
    ],
)
def test_help_and_versions(command, words):
    done = interpreter.run(command, env=dict(os.environ))
    assert done.returncode == 0 and done.stdout.startswith(words), done.stdout + done.stderr
    assert "passed" not in done.stdout
