# SPDX-License-Identifier: Apache-2.0
"""An operator that crashes, ends or hangs its process is told by name, and the rest is run."""

import functools
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import op_tools
import pytest
import torch
from op_tools import captures, run_op_from_data
from op_tools.captures import judging
from op_tools.core import untrusted_worker
from op_tools.runs import first_bad
from op_tools.save_op_args import write_args
from optools_helpers import output
from programs import program

pytestmark = pytest.mark.usefixtures("on_cpu")

PACKAGE = program(__file__, "_package")
# Runs as any Python begins: what a plugin with a kernel like this would do.
CRASHING_COSH = """
import os, signal, warnings, torch

warnings.simplefilter("ignore")
library = torch.library.Library("aten", "IMPL")
library.impl("cosh", lambda x: os.kill(os.getpid(), signal.SIGSEGV), "CPU")
"""
CRASHED = "the operator crashed the process (signal 11)"


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Makes folders of the calls named, in this order."""
    Path("odd_package.py").write_text(PACKAGE)
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(*names):
        for i, name in enumerate(names):
            write_args(f"calls/{i}/input", f"odd_package.{name}", "1", (torch.ones(2),), {})
        return "calls"

    return make


def run(capfd, *arguments):
    capfd.readouterr()
    flags = ["--run_times", "1", "--device", "cpu", "--allow", "odd_package"]
    code = run_op_from_data.main([*arguments, *flags])
    return code, capfd.readouterr().out


def replay(capfd, folder, *flags):
    flags = ["--device", "cpu", "--allow", "odd_package", *flags]
    return output(capfd, "replay", folder, *flags)


def pids():
    return Path("pids").read_text().split()


def test_a_replay_goes_on_after_a_crash(folders, capfd):
    folder = folders("which", "crash", "which", "leave", "which", "which")
    code, text = replay(capfd, folder)
    assert code == 1
    assert f"1  odd_package.crash: {CRASHED}" in text.out
    assert "3  odd_package.leave: the operator ended the process (exit code 3)" in text.out
    assert "6 calls on cpu: 4 agree, 2 differ or failed" in text.out
    first, second, third, fourth = pids()
    assert len({first, second, third, str(os.getpid())}) == 4  # a new one after each
    assert third == fourth


def test_so_does_run_op_from_data(folders, capfd):
    code, text = run(capfd, folders("which", "crash", "which"))
    assert code == 1
    assert f"calls/1: {CRASHED}" in text
    assert re.search(r"\|\s+1\s+\| +odd_package.crash .*False .*signal 11", text)
    assert "3 cases, 2 agree, 1 differ or could not be run" in text
    # What the process printed is all there, in its place.
    lines = [line for line in text.splitlines() if line.startswith(("dir: ", "about", "calls/1"))]
    assert [line.split(":")[0] for line in lines] == "dir,dir,about to crash,calls/1,dir".split(",")


def test_one_process_runs_them_all(folders, capfd):
    assert replay(capfd, folders("which", "which", "which"))[0] == 0
    (pid,) = set(pids())
    assert pid != str(os.getpid())


def test_in_this_process_where_asked_for(folders, capfd):
    assert replay(capfd, folders("which"), "--in-process")[0] == 0
    assert pids() == [str(os.getpid())]
    sys.modules.pop("odd_package")


def test_a_call_that_hangs(folders, capfd):
    code, text = replay(capfd, folders("hang", "which"), "--timeout", "3")
    assert code == 1
    why = "the operator did not end within 3 s (--timeout)"
    assert f"0  odd_package.hang: {why}" in text.out and "1 agree, 1 differ" in text.out
    assert not alive(int(Path("hanging").read_text()))


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def until(condition):
    for _ in range(600):
        if condition():
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_ending_the_command_ends_its_process(folders, how):
    command = [sys.executable, "-m", "op_tools", "replay", folders("hang")]
    command += ["--device", "cpu", "--allow", "odd_package"]
    # A job in the background ignores ^C, and so would what it starts.
    listen = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    asker = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=listen)
    hanging = Path("hanging")
    assert until(lambda: hanging.exists() and hanging.read_text())
    pid = int(hanging.read_text())
    asker.send_signal(how)
    asker.communicate(timeout=120)
    assert asker.returncode == -how
    assert until(lambda: not alive(pid))


@pytest.mark.parametrize("text", ["-1", "soon", "nan", "inf"])
def test_times_that_are_none(text, capsys):
    with pytest.raises(SystemExit):
        output(capsys, "replay", ".", "--timeout", text)
    assert "expected seconds" in capsys.readouterr().err


# ---- judging captured results ------------------------------------------------------
@pytest.fixture
def capture(monkeypatch, tmp_path):
    """Three operators; processes started from now on crash in the second."""
    tool = op_tools.OpCapture()
    x = torch.ones(3)
    with tool:
        x.sin(), x.cosh(), x.exp()
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text(CRASHING_COSH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"))
    return tool.folder


def test_a_replay_of_a_capture(capture, capfd):
    code, text = output(capfd, "replay", capture, "--device", "cpu")
    assert code == 1 and "2 agree, 1 differ or failed" in text.out
    (number,) = (r.number for r in captures.open(capture) if r.op == "aten::cosh")
    assert f"#{number}  aten::cosh: {CRASHED}" in text.out


def crossed(value):
    """JSON has no tuples."""
    return untrusted_worker.decode(untrusted_worker.encode(value))


def test_verdicts_of_another_process(capture):
    with untrusted_worker.Apart("judge", {}) as worker:
        judge = judging.judged_by(worker)
        found = {record.op: judge(record) for record in captures.open(capture)}
    assert found.pop("aten::cosh")["reason"] == CRASHED
    assert found == {
        record.op: crossed(judging.judge(record))
        for record in captures.open(capture)
        if record.op != "aten::cosh"
    }
    assert {verdict["verdict"] for verdict in found.values()} == {"pass"}


def test_a_report_has_the_others(capture, capfd):
    code, text = output(capfd, "report", capture, "--judge", "-o", "page.html")
    assert code == 1 and "3 calls, 1 error, 2 pass" in text.out
    assert CRASHED in Path("page.html").read_text()


def test_first_bad_goes_on(capture):
    """What could not be judged is no wrong operator, and no right one."""
    with untrusted_worker.Apart("judge", {}) as worker:
        found = first_bad.search(captures.open(capture), None, judging.judged_by(worker))
    assert found.found is None and found.judged == 2
    ((record, why),) = found.died
    assert record.op == "aten::cosh" and why == CRASHED


def test_complex_results_cross():
    tool = op_tools.OpCapture()
    with tool:
        torch.tensor([1 + 2j, 3.0]).sin()
    with untrusted_worker.Apart("judge", {}) as worker:
        judge = judging.judged_by(worker)
        (record,) = captures.open(tool.folder).select(op="aten::sin")
        made = judge(record)
        assert made == crossed(judging.judge(record))
        assert isinstance(made["results"][0]["got"], complex)
