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
