# SPDX-License-Identifier: Apache-2.0
"""Ranks that end in the middle of a collective, again and again: no rank hangs, no process and no memory is left.

`make test` runs each way twice, OPENNPU_TEST_FULL=1 twenty times. What is printed (pytest -s) is how long the others took.
"""

import contextlib
import os
import pickle
import random
import signal
import subprocess
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from programs import program
from ranks import CONTEXT, limit_calls

RUNS = 20 if os.environ.get("OPENNPU_TEST_FULL") == "1" else 2
SIZE = 4
LIMITS = {"stopped": 2.0}  # time-outs; where a process ends the others see it long before
LIMIT = 30.0
HANGS = 60.0  # a rank that takes longer hangs, however busy the machine is


def rank_of(number, file, victim, way, pipe):
    """Reduces 1 MiB without a pause; the victim goes as it is told, the others say what they saw."""
    torch.set_num_threads(1)
    torch.npu.set_device(0)
    dist.init_process_group(
        "hccl", init_method=f"file://{file}", rank=number, world_size=SIZE,
        timeout=timedelta(seconds=60),
    )  # fmt: skip
    limit_calls(LIMITS.get(way, LIMIT))
    x = torch.zeros(1 << 18, device="npu")
    dist.all_reduce(x)
    pipe.send("ready")
    calls = 0
    try:
        while True:
            dist.all_reduce(x)
            calls += 1
            if number == victim and way == "raises" and calls == 20:
                raise RuntimeError("the user's own")
            if number == victim and way == "leaves" and calls == 20:
                return  # destroy_process_group is never called
    except dist.DistBackendError as error:
        pipe.send(str(error))
    if number % 2:
        dist.destroy_process_group()


def in_shared_memory(pids):
    """Files of these processes."""
    return [
        str(path) for path in Path("/dev/shm").rglob("*") if any(str(p) in path.name for p in pids)
    ]


def alive(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def told(pipe, who):
    assert pipe.poll(HANGS), f"{who} hangs"
    try:
        return pipe.recv()
    except EOFError:
        raise AssertionError(f"{who} ended without a word") from None


def one_run(folder, way, generator):
    """(longest time until a survivor raised, pids)"""
    victim = generator.randrange(SIZE)
    started = []
    for number in range(SIZE):
        mine, theirs = CONTEXT.Pipe()
        arguments = (number, str(folder / "store"), victim, way, theirs)
        process = CONTEXT.Process(target=rank_of, args=arguments, daemon=True)
        process.start()
        theirs.close()
        started.append((process, mine))
    pids = [process.pid for process, _ in started]
    try:
        for number, (_, pipe) in enumerate(started):
            assert told(pipe, f"rank {number}") == "ready"
        time.sleep(generator.uniform(0, 0.1))
        began = time.monotonic()
        if way in ("killed", "stopped"):
            os.kill(pids[victim], signal.SIGKILL if way == "killed" else signal.SIGSTOP)
        for number, (process, pipe) in enumerate(started):
            if number == victim:
                continue
            text = told(pipe, f"rank {number}")
            assert f"rank {victim} (process {pids[victim]})" in text.lower(), text
            assert "all_reduce SUM Float [262144]" in text
            process.join(HANGS)
            assert process.exitcode == 0, (number, process.exitcode)
        took = time.monotonic() - began
        if way == "stopped":
            os.kill(pids[victim], signal.SIGCONT)  # it finds its group gone, and ends too
            told(started[victim][1], "the rank that was stopped")
        started[victim][0].join(HANGS)
        wanted = {"killed": -signal.SIGKILL, "stopped": 0, "raises": 1, "leaves": 0}[way]
        assert started[victim][0].exitcode == wanted
    finally:
        for process, pipe in started:
            process.kill()
            process.join()
            pipe.close()
    return took, pids


@pytest.mark.parametrize("way", ["killed", "stopped", "raises", "leaves"])
def test_one_rank_goes(way, tmp_path):
    generator = random.Random(way)
    longest, pids = [], []
    for run in range(RUNS):
        folder = tmp_path / str(run)
        folder.mkdir()
        took, those = one_run(folder, way, generator)
        longest.append(took)
        pids += those
    assert [pid for pid in pids if alive(pid)] == []
    from opennpu import top_pages

    top_pages.look(wait=0)  # takes away the pages of processes that were killed
    assert in_shared_memory(pids) == []
    print(
        f"{way}: {RUNS} runs, time-out {LIMITS.get(way, LIMIT)} s, the others ended after at most {max(longest):.2f} s"
    )


LEAVES = program(__file__, "_leaves")


@pytest.mark.parametrize("form", ["callbacks", "waiting"])
def test_python_ends_while_work_is_under_way(form, tmp_path):
    """What follows a collective needs Python's lock, which ends a thread once the interpreter ends."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", LEAVES, str(rank), str(tmp_path / "store"), form],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in started:
        _, said = process.communicate(timeout=2 * HANGS)
        assert process.returncode == 0 and "terminate" not in said, said


RECORD = program(__file__, "_record")


def test_python_ends_while_a_flight_record_is_written(tmp_path):
    """The rank whose call timed out ends at once; its record needs Python for seconds to name the lines."""
    records = tmp_path / "records"
    records.mkdir()
    env = {
        **os.environ, "OMP_NUM_THREADS": "1", "TORCH_HCCL_DUMP_ON_TIMEOUT": "1",
        "TORCH_HCCL_DEBUG_INFO_TEMP_FILE": f"{records}/rank_",
    }  # fmt: skip
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RECORD, str(rank), str(tmp_path / "store")],
            env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said, _ = ranks[0].communicate(timeout=2 * HANGS)
    finally:
        ranks[1].kill()
        ranks[1].communicate()
    assert ranks[0].returncode == 0 and "timed out after 1000 ms" in said, said
    held = pickle.loads((records / "rank_0").read_bytes())
    assert "deep" in {frame["name"] for frame in held["entries"][0]["frames"]}


LOOP = program(__file__, "_loop")


def test_torchrun_leaves_nobody_behind(tmp_path):
    """A rank is killed under torchrun, which ends: nothing that it started runs any more."""
    mark = f"OPENNPU_TEST_RUN={uuid.uuid4()}"
    (tmp_path / "loop.py").write_text(LOOP)
    name, _, value = mark.partition("=")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=3", "--standalone", "loop.py"],
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1", name: value},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1 and "Signal 9 (SIGKILL)" in done.stderr, done.stderr[-2000:]
    left = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in entry.read_bytes():
                left.append((entry.parent / "cmdline").read_bytes())
    assert left == []
