# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu_session.sh on a machine whose GPU commands are stand-ins: it has to bring something back whatever fails."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def machine(tmp_path):
    """A folder of the session, and one whose programs come first on PATH."""
    kit, bin_ = tmp_path / "kit", tmp_path / "bin"
    kit.mkdir()
    bin_.mkdir()
    shutil.copy(SCRIPTS / "gpu_session.sh", kit)

    def program(path, body):
        path.write_text(f"#!/bin/bash\n{body}\n")
        path.chmod(0o755)

    program(
        bin_ / "nvidia-smi", 'case "$*" in *query*) echo "Stand-in GPU, 1.2";; *) echo table;; esac'
    )
    program(bin_ / "compute-sanitizer", 'shift 4; exec "$@"')
    program(bin_ / "python3", 'echo "python3 $*"')
    program(kit / "npu_conformance", 'echo "TRY=$NPU_CUDA_TRY $*"')

    def run(limit=560, plugin="plugin", **more):
        out = tmp_path / "out"
        began = time.monotonic()
        done = subprocess.run(
            [kit / "gpu_session.sh", "run"],
            env={
                "PATH": f"{bin_}:{os.environ['PATH']}",
                "OUT": str(out),
                "LIMIT": str(limit),
                "PLUGIN": plugin,
                "NPU_CUDA_LIBRARIES": "/none",
                **more,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        assert done.stderr == ""
        files = {path.name: path for path in out.iterdir()}
        assert len(files) <= 8
        assert all(path.stat().st_size <= 16 << 20 for path in files.values())
        return done, files, time.monotonic() - began

    run.program = program
    run.kit = kit
    run.bin = bin_
    return run


def results(files):
    rows = [
        line.split(" | ")
        for line in files["summary.md"].read_text().splitlines()
        if line.startswith("| ")
    ]
    return {row[0][2:]: row[1].removesuffix(" | | |") for row in rows[1:]}


def test_every_step_runs_with_its_switch(machine):
    done, files, _ = machine()
    assert done.returncode == 0
    got = results(files)
    assert set(got.values()) == {"passed"}
    for name, switch in (
        ("comm/1, one rank", "comm"),
        ("profiler/1", "profiler"),
        ("capture/1", "capture"),
    ):
        assert got[name] == "passed"
        assert f"TRY={switch} " in files["new.log"].read_text()
    assert "TRY= --driver" in files["kit.log"].read_text()
    assert "benchmarks.gpu" in files["benchmark.log"].read_text()
    assert "# " in done.stdout and "Stand-in GPU" in done.stdout
    assert set(files) == {
        "summary.md", "machine.txt", "new.log", "kit.log", "plugin.log", "benchmark.log", "sanitizer.log",
    }  # fmt: skip


def test_a_failing_step_does_not_end_the_session(machine):
    machine.program(
        machine.kit / "npu_conformance",
        'case "$*" in *profiler*) echo "[  FAILED  ] profiler.Times"; exit 1;; *capture*) kill -SEGV $$;; esac',
    )
    done, files, _ = machine()
    got = results(files)
    assert got["profiler/1"] == "exit status 1"
    assert got["capture/1"] == "exit status 139"
    assert got["benchmark"] == "passed"
    assert "[  FAILED  ] profiler.Times" in done.stdout


def test_a_step_that_hangs_is_ended_and_later_ones_are_left_out(machine):
    machine.program(machine.kit / "npu_conformance", 'case "$*" in *program*) sleep 100;; esac')
    _, files, took = machine(limit=17)
    assert took < 60
    got = results(files)
    assert got["programs"].startswith("ended after 1")
    assert got["benchmark"].startswith("left out")


def test_a_step_that_prints_without_end_leaves_room_for_the_others(machine):
    machine.program(
        machine.kit / "npu_conformance", "head -c 20000000 /dev/zero | tr '\\0' 'x'; echo the end"
    )
    _, files, _ = machine(plugin="")
    assert "benchmark.log" not in files
    assert files["new.log"].read_text().count("the end") >= 7
    assert files["summary.md"].stat().st_size < 50_000


def test_make_puts_into_the_folder_what_run_needs(tmp_path):
    """The names that the script runs are names that it copies."""
    text = (SCRIPTS / "gpu_session.sh").read_text()
    used = {
        word.split("/")[-1].strip('"') for word in text.split() if word.startswith('"$here/gpu_')
    }
    copied = text[text.index('cp "$0"') :].splitlines()[0]
    assert used - {"gpu_kit.sh"}
    for name in used - {"gpu_kit.sh"}:
        assert name in copied
        assert (SCRIPTS / name).exists()
