# SPDX-License-Identifier: Apache-2.0
"""The `opennpu` command as a user runs it."""

import json
import os
import re
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


def test_doctor_says_what_to_do_about_a_wrong_value() -> None:
    done = opennpu_command("doctor", NPU_HOST_DEVICES="abc")
    assert done.returncode == 1 and "NPU_HOST_DEVICES=abc is not valid" in done.stdout
    assert "do: give the variable one of the allowed values" in done.stdout


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


def test_versions() -> None:
    done = opennpu_command("--version")
    assert done.returncode == 0 and re.fullmatch(r"opennpu \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize(
    "words", [["doctor"], ["driver", "check"], ["pack", "build"], ["top"], ["profile"], ["explain"]]
)
def test_version_and_language_after_every_command(words, capsys) -> None:
    from opennpu import cli

    with pytest.raises(SystemExit) as ended:
        cli.main([*words, "--version"])
    assert ended.value.code == 0
    assert re.fullmatch(r"opennpu \d+\.\d+\.\d+\n", capsys.readouterr().out)
    given = {"driver": ["check", "host"], "pack": ["build"], "profile": ["x"], "explain": ["x"]}
    parsed = cli.parser().parse_args([words[0], *given.get(words[0], []), "--lang", "zh"])
    assert parsed.lang == "zh"


@pytest.mark.parametrize("columns", [40, 60, 100])
@pytest.mark.parametrize(
    "arguments", [["ops", "softmax"], ["explain", "507018"], ["--lang", "zh", "explain", "507018"]]
)
def test_lines_fit_the_terminal(arguments, columns, monkeypatch, capsys) -> None:
    from opennpu import cli, words

    assert cli.main(arguments) == 0
    free = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", str(columns))
    try:
        assert cli.main(arguments) == 0
    finally:
        words.choose(None)
    fitted = capsys.readouterr().out
    assert max(words.columns_of(line) for line in fitted.splitlines()) <= columns
    assert re.sub(r"\s", "", fitted) == re.sub(r"\s", "", free)  # and nothing is left out


def test_folding_counts_columns_and_keeps_every_character() -> None:
    from opennpu import words

    assert words.columns_of("ab") == 2 and words.columns_of("内存") == 4
    for text in (
        "",
        "a" * 50,
        "one two three four five",
        "内存占用，很大。a_b",
        "  x " * 9,
        "é" * 30,
    ):
        for width in (10, 12, 20):
            lines = words.folded(text, width, "  ")
            assert all(words.columns_of(line) <= width for line in lines), (text, width, lines)
            assert re.sub(r"\s", "", "".join(lines)) == re.sub(r"\s", "", text)
    rows = [("a", "1", "first cell"), ("long name", "12345", "x" * 40)]
    for width in (20, 40, 80):
        assert all(words.columns_of(line) <= width for line in words.padded(rows, "lrl", width))


def test_progress_is_for_terminals_alone(monkeypatch) -> None:
    import io
    import sys
    import time

    from opennpu import progress

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress, "AFTER", 0.01)
    monkeypatch.setattr(progress, "EVERY", 0.001)
    shown = {}
    for stream in (Terminal(), io.StringIO()):
        monkeypatch.setattr(sys, "__stderr__", stream)
        with progress.Working("building my_ops"):
            end = time.monotonic() + 30
            while stream.isatty() and "/ 00:00" not in stream.getvalue() and time.monotonic() < end:
                time.sleep(0.001)
        shown[stream.isatty()] = stream.getvalue()
    assert "building my_ops | 00:00" in shown[True] and shown[True].endswith("\r\x1b[K")
    assert shown[False] == ""


def test_a_package_without_the_kit_names_the_command(monkeypatch, tmp_path, capsys) -> None:
    from opennpu import cli, conformance

    monkeypatch.setattr(conformance, "package", lambda: None)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["driver", "check", "libmine.so"]) == 2
    assert f"opennpu driver check {tmp_path}/libmine.so" in capsys.readouterr().err


def test_language_of_the_environment_where_no_such_locale_is_installed() -> None:
    """And one flag before the command, or after explain."""
    chinese = {"LC_ALL": "zh_CN.GB18030.no", "PYTHONIOENCODING": "utf-8"}
    assert "现象" in opennpu_command("explain", "ERR01007", **chinese).stdout
    assert "Cause" in opennpu_command("--lang", "en", "explain", "ERR01007", **chinese).stdout
    plain = {"LC_ALL": "C", "PYTHONIOENCODING": "utf-8"}
    for words in (["--lang", "zh", "explain", "ERR01007"], ["explain", "ERR01007", "--lang", "zh"]):
        assert "现象" in opennpu_command(*words, **plain).stdout


def test_a_terminal_of_ascii_gets_no_traceback() -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii", "LC_ALL": "zh_CN.UTF-8"}
    done = opennpu_command("explain", "ERR01007", **ascii_only)
    assert done.returncode == 0 and "Cause" in done.stdout, done.stderr
    done = opennpu_command("--lang", "zh", "explain", "ERR01007", **ascii_only)
    assert done.returncode == 0 and "\\u73b0" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "code, name", [("507018", "AICPU_EXCEPTION"), ("507015", "AICORE_EXCEPTION"), ("207018", "DEVICE_OOM")]
)  # fmt: skip
def test_codes_of_ascends_runtime(code, name) -> None:
    for lang, heading in (("en", "What to do"), ("zh", "处理方法")):
        done = opennpu_command("--lang", lang, "explain", code, PYTHONIOENCODING="utf-8")
        assert done.returncode == 0 and f"{code} ACL_ERROR_RT_{name}" in done.stdout
        assert heading in done.stdout


@pytest.mark.parametrize(
    "code, english, chinese",
    [
        ("507999", "near it: 507", "相近的有：507"),
        ("12", "is no code of Ascend's runtime that is known here. Codes", "运行时错误码。"),
        ("ERR01", "no error code ERR01: it is ERR, a module (00, ", "没有错误码 ERR01"),
        ("ERR99007777", "no error code ERR99007777", "没有错误码"),
        ("EZ1001", "EZ1001 is a code of Ascend's toolkit", "工具包（CANN）的错误码"),
        ("E40021", "is a code of Ascend's toolkit", "工具包（CANN）的错误码"),
    ],
)
def test_codes_that_are_unknown(code, english, chinese) -> None:
    for lang, said in (("en", english), ("zh", chinese)):
        done = opennpu_command("--lang", lang, "explain", code, PYTHONIOENCODING="utf-8")
        assert done.returncode == 2 and said in done.stderr and not done.stdout, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_every_runtime_code_is_listed_once() -> None:
    from opennpu import runtime_codes

    rows = [row.split() for text in runtime_codes._FAMILIES.values() for row in text.split(", ")]
    numbers = [number for number, _ in rows]
    assert len(set(numbers)) == len(numbers) and len({name for _, name in rows}) == len(rows)
    for number in numbers:
        name, parts = runtime_codes.find(int(number))
        assert name and all(
            parts[lang][key] for lang in parts for key in ("seen", "cause", "effect", "do")
        )
