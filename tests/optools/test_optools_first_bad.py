# SPDX-License-Identifier: Apache-2.0
"""op-tools first-bad: a wrong kernel in a script is named, with a reproducer that stands alone."""

import os
import re

import interpreter
import pytest
from op_tools import captures
from op_tools.captures import judging, reproducer
from op_tools.cli import main
from op_tools.runs import script_runs
from op_tools.runs.bisecting import bisect
from optools_helpers import output
from programs import program

# Real interpreters run the same in docs/tools.md.
pytestmark = pytest.mark.usefixtures("forked_runs")

SCRIPT = program(__file__, "_script")


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.delenv("OP_TOOLS_DEVICE", raising=False)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def hunt(capsys, *arguments):
    return output(capsys, "first-bad", *arguments)


def expect_gelu(code, text):
    assert code == 1, text
    assert re.search(r"first bad: aten::gelu, call \d+ of \d+, forward, step 0", text.out), text.out
    assert re.search(r"\(E \d", text.out) and "module: 1" in text.out
    assert re.search(r"at: .*train\.py:\d+ ", text.out)
    assert re.search(r"output\[0, 3\] is .*, float64 ", text.out)
    return re.search(r"reproducer: (.*reproduce\.py)", text.out)[1]


def test_a_wrong_kernel_of_the_cpu(script, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    code, text = hunt(capsys, script, "cpu", "gelu", "-o", "found")
    path = expect_gelu(code, text)
    run = interpreter.run([path])
    assert run.returncode == 0, run.stderr
    with open(path, encoding="utf-8") as file:
        assert "op_tools" not in file.read()
    far = [float(found) for found in re.findall(r"at most (\S+) from", run.stdout)]
    assert far[0] < 1e-6 < 1e-5 < far[1]  # right in that process, and not what was captured
    ((folder, held),) = reproducer.find("found")
    assert held["op"] == "aten::gelu" and os.path.dirname(path) == folder
    assert main(["report", "found/device", "-o", "page.html"]) == 0
    assert "1 reproducer," in capsys.readouterr().out


def test_a_right_script(script, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    code, text = hunt(capsys, script, "cpu", "none")
    assert code == 0 and "no operator is wrong" in text.out


def test_against_the_cpu(script, capsys, accelerator, monkeypatch):
    monkeypatch.delenv("OP_TOOLS_DEVICE")
    code, text = hunt(capsys, script, accelerator, "gelu", "--reference", "cpu", "-o", "found")
    expect_gelu(code, text)
    assert "inputs: " in text.out and "no such call" not in text.out
    calls, matched, others = re.search(r"(\d+) calls, (\d+) .* with (\d+) of", text.out).groups()
    assert int(matched) == int(calls) == int(others) > 40
    code, text = hunt(capsys, script, accelerator, "none")
    assert code == 0, text.out


def test_a_model_with_dropout(script, capsys, accelerator, monkeypatch):
    """What draws stays on the device, and numbers of the program's stay numbers."""
    monkeypatch.delenv("OP_TOOLS_DEVICE")
    code, text = hunt(capsys, script, accelerator, "dropout", "--reference", "cpu", "-o", "found")
    assert code == 0 and "no operator is wrong" in text.out, text.out
    calls, matched = re.search(r"(\d+) calls, (\d+) .* with", text.out).groups()
    assert calls == matched
    names = {record.op for record in captures.open(captures.find("found")[0])}
    assert names & {"aten::native_dropout", "aten::bernoulli_.float"}, names


def test_against_a_capture(script, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    hunt(capsys, script, "cpu", "none", "-o", "good")
    (good,) = captures.find("good")
    code, text = hunt(capsys, script, "cpu", "gelu", "--reference", "capture", good)
    expect_gelu(code, text)
    assert "inputs: the same bits as in the reference" in text.out


NAMES = [f"aten::op{i}" for i in range(37)]


@pytest.mark.parametrize("places", [[0], [17], [36], [1, 30], [0, 1], [35, 36], [3, 4, 20, 36]])
def test_bisection_finds_every_culprit(places):
    bad = {NAMES[i] for i in places}
    found = bisect(NAMES, lambda on_cpu: bad <= set(on_cpu))
    assert set(found.culprits) == bad and found.complete
    assert found.runs <= 1 + 7 * len(bad)


def test_bisection_says_what_remains():
    bad = set(NAMES[::4])
    found = bisect(NAMES, lambda on_cpu: bad <= set(on_cpu), limit=2)
    assert not found.complete and len(found.culprits) == 2 and set(found.culprits) < bad
    # Those not named are all among the operators it says it has not looked at.
    assert bad - set(found.culprits) <= set(NAMES[: found.unsearched])


def test_bisection_where_operators_are_not_it():
    for names in (NAMES, []):
        found = bisect(names, lambda on_cpu: False)
        assert found.culprits == [] and not found.complete


def test_bisection_of_culprits_that_need_each_other_or_not():
    """Either of two will do: one is enough."""
    either = {NAMES[5], NAMES[30]}
    found = bisect(NAMES, lambda on_cpu: bool(either & set(on_cpu)))
    assert found.culprits == [NAMES[5]] and found.complete


@pytest.fixture
def all_pass(monkeypatch):
    """Every verdict a pass: only the numbers the script prints tell. Gives the flag for it."""
    plain = {"verdict": "pass", "reason": "", "worst": 0, "results": []}
    monkeypatch.setattr(judging, "judge", lambda record: plain)
    return "--in-process"


def test_bisection_where_no_call_is_wrong_by_itself(
    script, capsys, accelerator, monkeypatch, all_pass
):
    monkeypatch.delenv("OP_TOOLS_DEVICE")
    code, text = hunt(capsys, script, accelerator, "gelu", "--rtol", "1e-5", all_pass)
    assert code == 1, text.out
    assert "good with aten::gelu on the cpu" in text.out and "first bad: aten::gelu" in text.out


def test_bisection_names_both_of_two(script, capsys, accelerator, monkeypatch, all_pass):
    monkeypatch.delenv("OP_TOOLS_DEVICE")
    code, text = hunt(capsys, script, accelerator, "two", "--rtol", "1e-5", all_pass)
    assert code == 1, text.out
    (names,) = re.findall(r"after \d+ runs: good with (.*) on the cpu", text.out)
    assert set(names.split(", ")) == {"aten::gelu", "aten::tanh"}
    assert "first bad: aten::gelu" in text.out  # of the two, the one that was called first


def test_the_environment_of_a_run(monkeypatch):
    for name, value in {
        "OP_FALLBACK_LIST": "aten::sin",
        "OP_FALLBACK_DISABLE_LIST": "aten::cos",
        "OP_TOOLS_VERBOSE": "ditorch",
        "OP_CAPTURE_CONTENT": "none",
        "OP_CAPTURE_FORMAT": "ditorch",
        "OP_CAPTURE_STEPS": "3",
    }.items():
        monkeypatch.setenv(name, value)
    found = script_runs.environment({"OP_CAPTURE_DIR": "here"})
    assert not [name for name in found if name.startswith("OP_FALLBACK") or "VERBOSE" in name]
    assert found["OP_CAPTURE_CONTENT"] == "full" and found["OP_CAPTURE_FORMAT"] == "native"
    assert found["OP_CAPTURE_STEPS"] == "3"  # theirs to choose
    assert found["OP_CAPTURE_DIR"] == os.path.abspath("here")


def test_a_script_that_goes_to_another_folder(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    monkeypatch.setenv("OP_CAPTURE_CONTENT", "hash")
    (tmp_path / "elsewhere").mkdir()
    path = tmp_path / "goes.py"
    path.write_text(
        "import os, torch\nos.chdir('elsewhere')\nprint(torch.nn.Linear(3, 3)(torch.ones(3)).sum())\n"
    )
    code, text = hunt(capsys, path, "-o", "found")
    assert code == 0 and re.search(r"no operator is wrong: [1-9]", text.out), text
    assert captures.find("found") and not os.listdir("elsewhere")


def test_contents_that_are_not_known_are_not_the_same(script, capsys, monkeypatch):
    """A reference of hashes alone, or of nothing."""
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    import op_tools
    import torch
    from op_tools.captures.differences import inputs_of, results_of, same_bits

    folders = {}
    for content in ("full", "none"):
        tool = op_tools.OpCapture()
        tool.content = content
        with tool:
            torch.ones(3).sin()
        folders[content] = {r.op: r for r in captures.open(tool.folder)}["aten::sin"]
    full, none = folders["full"], folders["none"]
    assert same_bits(results_of(full), results_of(full))
    assert not same_bits(results_of(none), results_of(none))
    assert not same_bits(inputs_of(none), inputs_of(none), overlook=captures.STAND_INS)


@pytest.mark.parametrize(
    "order",
    [
        ["{script}", "--reference", "cpu", "--", "cpu", "gelu"],
        ["--reference", "cpu", "{script}", "cpu", "--", "gelu"],
        ["{script}", "cpu", "gelu", "--reference", "cpu"],
        ["{script}", "cpu", "--rtol", "1e-3", "gelu", "--reference", "capture", "{good}"],
        ["--reference", "capture", "{good}", "{script}", "--", "cpu", "gelu"],
    ],
    ids=" ".join,
)
def test_flags_and_arguments_in_any_order(script, order, monkeypatch):
    from op_tools.cli import first_bad_command

    seen = []
    monkeypatch.setattr(first_bad_command._Hunt, "run", lambda self: seen.append(self) or 0)
    good = op_tools_capture()
    words = [word.format(script=script, good=good) for word in order]
    assert main(["first-bad", *words, "-o", "found"][: None if "--" not in words else -2]) == 0
    (found,) = seen
    assert found.flags.script == script and found.flags.arguments == ["cpu", "gelu"]
    assert (found.given is not None) == ("capture" in words)


def op_tools_capture():
    import op_tools
    import torch

    tool = op_tools.OpCapture()
    with tool:
        torch.ones(3).sin()
    return tool.folder


def test_flags_of_the_script_without_dashes_between(script, capsys):
    with pytest.raises(SystemExit):
        main(["first-bad", script, "--steps", "3"])
    assert "flags of the script go after --" in capsys.readouterr().err


def test_a_script_that_fails(script, capsys, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", "cpu")
    code, text = hunt(capsys, script, "cpu", "raise")
    assert code == 1 and "ended with code 1: RuntimeError: it was to be" in text.out


def test_wrong_use(script, capsys):
    for arguments, said in (
        (["nowhere.py"], "nowhere.py is no file"),
        ([script, "--reference", "moon"], "expected cpu, or: capture DIR"),
        ([script, "--reference", "capture", "nowhere"], "no capture"),
    ):
        code, text = hunt(capsys, *arguments)
        assert code == 2 and said in text.err, text.err
