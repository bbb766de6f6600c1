# SPDX-License-Identifier: Apache-2.0
"""`opennpu top`: pages of processes, and what is shown of them."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from opennpu import top, top_pages

BUSY = """
import torch, torch_npu, sys
a = torch.randn(400, 400, device="npu")
kept = torch.empty(1 << 22, device="npu")
print(torch_npu._C._top_page(), flush=True)
while True:
    a @ a
"""
IDLE = """
import torch, torch_npu, sys, time
a = torch.ones(10, device="npu") + 1
print(torch_npu._C._top_page(), flush=True)
for line in sys.stdin:                # each is a question
    if not line.strip():
        break
    print(torch_npu._C._watched_for(), flush=True)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("top") / "pages"
    made.mkdir(mode=0o700)
    before = os.environ.get("NPU_TOP_FOLDER")
    os.environ["NPU_TOP_FOLDER"] = str(made)
    yield made
    if before is None:
        del os.environ["NPU_TOP_FOLDER"]
    else:
        os.environ["NPU_TOP_FOLDER"] = before


@contextlib.contextmanager
def running(code, folder, **variables):
    """A program that has printed its first line: the path of its page."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
    )
    try:
        process.page = process.stdout.readline().strip()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def look_at(process):
    """What the page of one process says."""
    (seen,) = [p for p in top_pages.look(wait=2) if p.pid == process.pid]
    return seen


def settled(condition, seconds=30.0):
    """Waits for it: the machine may be busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if condition():
            return True
        time.sleep(0.05)
    return False


def asked(process):
    """What a program says that answers each line."""
    process.stdin.write("?\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def is_busy(process):
    seen = look_at(process)
    return bool(seen.answers and seen.devices and seen.devices[0].busy > 0.2)


def test_a_busy_process(folder):
    with running(BUSY, folder) as process:
        assert os.stat(process.page).st_mode & 0o777 == 0o600
        assert settled(lambda: is_busy(process))
        seen = look_at(process)
        (device,) = seen.devices
        assert seen.driver == "host"
        assert device.allocated >= 1 << 24 and device.reserved >= device.allocated
        assert device.peak >= device.allocated and 0 < device.free <= device.total
        assert device.pieces > 0
        shown = "\n".join(top.lines([seen]))
        assert f"{process.pid}" in shown and "npu:0" in shown and "busy" in shown
        the_command(process)


def the_command(process):
    def run(*arguments):
        command = [sys.executable, "-m", "opennpu", "top", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, cwd=os.path.dirname(process.page)
        )

    content = json.loads(run("--json").stdout)
    assert process.pid in [p["pid"] for p in content["processes"]]
    assert content["devices"][0]["device"] == 0
    once = run("--once").stdout
    assert str(process.pid) in once and "memory" in once
    wrong = run("--interval", "0")
    assert wrong.returncode == 2 and "no number of seconds" in wrong.stderr


def test_it_counts_where_streams_run_late(folder):
    with running(BUSY, folder, NPU_HOST_ASYNC="1") as process:
        assert settled(lambda: is_busy(process))


def test_the_life_of_a_page(folder):
    with running(IDLE, folder) as process:
        seen = look_at(process)
        assert seen.answers and seen.devices[0].busy == 0
        # Two seconds after the last request it sleeps again and counts nothing.
        assert settled(lambda: asked(process) == "0")

        process.send_signal(signal.SIGSTOP)
        state = f"/proc/{process.pid}/stat"
        assert settled(lambda: Path(state).read_text().rpartition(")")[2].split()[0] == "T")
        began = time.monotonic()
        seen = look_at(process)  # a stopped process does not stop us
        assert time.monotonic() - began < 10 and not seen.answers
        assert "does not answer" in "\n".join(top.lines([seen]))
        process.kill()
        process.wait()
        assert os.path.exists(process.page)
        with running(IDLE, folder) as other:  # the next process removes it
            assert not os.path.exists(process.page) and os.path.exists(other.page)
            other.stdin.write("\n\n")
            other.stdin.flush()
            other.wait(timeout=60)
            assert not os.path.exists(other.page)  # a page goes with its process


def test_a_forked_child_leaves_the_page_alone(folder):
    code = """
        import os, sys, torch, torch_npu
        a = torch.ones(10, device="npu")
        if os.fork() == 0:
            sys.exit(0)            # with all that runs at exit
        os.wait()
        print(torch_npu._C._top_page(), flush=True)
        sys.stdin.readline()
        """
    with running(code, folder) as process:
        assert os.path.exists(process.page)
        assert look_at(process).answers


PAGE = "import torch, torch_npu; torch.ones(1, device='npu'); print(torch_npu._C._top_page())"


def test_switched_off(run_code, tmp_path):
    assert run_code(PAGE, NPU_TOP="0", NPU_TOP_FOLDER=str(tmp_path / "p")).stdout == "\n"
    assert not (tmp_path / "p").exists()
    wrong = run_code(PAGE, check=False, NPU_TOP="maybe", NPU_TOP_FOLDER=str(tmp_path / "p"))
    assert "NPU_TOP" in wrong.stderr and wrong.returncode != 0


def test_folders_that_others_can_write_are_not_used(run_code, tmp_path, monkeypatch):
    public = tmp_path / "public"
    public.mkdir()
    public.chmod(0o777)
    assert run_code(PAGE, NPU_TOP_FOLDER=str(public)).stdout == "\n"
    monkeypatch.setenv("NPU_TOP_FOLDER", str(public))
    assert top_pages.open_pages() == []


def test_what_is_no_page_is_left_alone(tmp_path, monkeypatch):
    folder = tmp_path / "pages"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("NPU_TOP_FOLDER", str(folder))
    (folder / "1.page").write_bytes(b"x" * 100)
    (folder / "3.page").symlink_to("/etc/passwd")
    os.mkfifo(folder / "4.page")
    (folder / "5.page").mkdir()
    assert top_pages.look() == []
    assert (folder / "1.page").exists() and (folder / "3.page").is_symlink()


def test_the_page_of_a_killed_process_is_removed(tmp_path, monkeypatch):
    folder = tmp_path / "pages"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("NPU_TOP_FOLDER", str(folder))
    orphan = folder / "2.page"  # its lock is free
    orphan.write_bytes(b"\0" * top_pages.SIZE)
    orphan.chmod(0o600)
    assert top_pages.look() == []
    assert not orphan.exists()


def test_text_of_others_does_not_steer_the_terminal():
    assert top_pages._text(b"a\x1b[2Jb\0rest") == "a?[2Jb"


def test_devices_are_shown_once():
    one = top_pages.Device(0, "n", 0.7, 100, 50, 10, 20, 10, 1)
    processes = [top_pages.Process(pid, "u", "c", "host", 0.0, True, [one]) for pid in (1, 2)]
    (row,) = top.devices_of(processes)
    assert (row["busy"], row["reserved"], row["processes"]) == (1.0, 40, 2)
    assert top.lines([]) == [top._WORDS["en"]["idle"]]
