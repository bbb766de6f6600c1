# SPDX-License-Identifier: Apache-2.0
"""The `opennpu` command as a user runs it."""

import json
import os
import subprocess
from pathlib import Path

import interpreter
import opennpu
import pytest

FAULTS = json.loads((Path(opennpu.__file__).parent / "faults.json").read_text(encoding="utf-8"))


def opennpu_command(*arguments: str, **env: str) -> subprocess.CompletedProcess:
    return interpreter.run(
        ["-m", "opennpu", *arguments],
        env={**os.environ, **env},
        timeout=120,
    )


def test_doctor_ends_ok() -> None:
    done = opennpu_command("doctor")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("OK")


def test_doctor_names_a_driver_that_is_not_there() -> None:
    done = opennpu_command("doctor", NPU_DRIVER="nonsense")
    assert done.returncode == 1
    assert "nonsense" in done.stdout
    assert "do:" in done.stdout


def test_doctor_as_json() -> None:
    done = opennpu_command("doctor", "--json", NPU_FALBACK="silent")
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["ok"] is True
    names = [row["name"] for row in found["checks"]]
    assert names[0] == "torch" and names[-1] == "operator"
    [warning] = [row for row in found["checks"] if row.get("warning")]
    assert warning["name"] == "variables"
    failed = json.loads(opennpu_command("doctor", "--json", NPU_DRIVER="nonsense").stdout)
    assert failed["ok"] is False and "nonsense" in failed["checks"][-1]["text"]
    assert failed["checks"][-1]["do"]


def test_doctor_knows_misspelt_variables() -> None:
    done = opennpu_command(
        "doctor", NPU_FALBACK="silent", NPU_XYZZY="1", NPU_HOST_DEVICES="2", NPU_FA2_SPARSE_MODE="3"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line for line in done.stdout.splitlines() if "WARNING" in line]
    assert len(lines) == 2
    assert "NPU_FALBACK is not a variable of this package; did you mean NPU_FALLBACK?" in lines[0]
    assert "NPU_XYZZY" in lines[1] and "docs/environment.md" in lines[1]


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("NPU_PROFILE", "nonsense", "is not a profile"),
        ("NPU_FALLBACK", "maybe", "warn, silent, error"),
    ],
)
def test_wrong_values_are_told_at_first_use_of_the_device(name, value, words) -> None:
    code = "import torch, torch_npu\nprint('imported')\ntorch.zeros(1, device='npu')\nprint('used')"
    done = interpreter.run(["-c", code], env={**os.environ, name: value}, timeout=120)
    assert done.stdout.split() == ["imported"] and done.returncode == 1
    assert name in done.stderr and words in done.stderr


def test_explain_code_in_both_languages() -> None:
    english = opennpu_command("explain", "ERR01007", "--lang", "en")
    chinese = opennpu_command("explain", "err01007", "--lang", "zh")
    for heading in ("What is seen", "Cause", "Effect", "What to do"):
        assert heading in english.stdout
    for heading in ("现象", "原因", "影响", "处理方法"):
        assert heading in chinese.stdout
    assert "feature not supported" in english.stdout


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_code_has_all_four_parts(lang: str) -> None:
    for kind in FAULTS["kinds"].values():
        assert set(kind[lang]) == {"seen", "cause", "effect", "do"}


def test_explain_operator_that_falls_back() -> None:
    done = opennpu_command("explain", "aten::linalg_lstsq", "--lang", "en")
    assert done.returncode == 0, done.stderr
    assert "aten::linalg_lstsq.out" in done.stdout
    assert "ascend910b" in done.stdout


def test_explain_operator_that_is_native() -> None:
    done = opennpu_command("explain", "aten::add", "--lang", "en")
    assert done.returncode == 0, done.stderr
    assert "no warning" in done.stdout


@pytest.mark.parametrize("subject", ["ERR01777", "aten::linalg_lstsk", "what is this?"])
def test_explain_refuses_in_one_line(subject: str) -> None:
    done = opennpu_command("explain", subject)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_explain_offers_the_nearest_operator() -> None:
    assert "aten::linalg_lstsq" in opennpu_command("explain", "aten::linalg_lstsk").stderr
