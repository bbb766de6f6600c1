# SPDX-License-Identifier: Apache-2.0
"""Captures whose process died, whose disk was full, whose files were damaged or are another's."""

import os
import shutil
import signal
import struct
import subprocess
import sys
import time

import interpreter
import op_tools
import pytest
import torch
from op_tools import _C, captures
from op_tools.core import results
from programs import program

pytestmark = pytest.mark.usefixtures("on_cpu")


def small_capture(calls=6):
    tool = op_tools.OpCapture()
    with tool:
        for i in range(calls):
            torch.full((50 + i,), float(i)).neg()
    return tool.folder


def readable(capture):
    """How many records can be read whole."""
    count = 0
    for record in capture:
        record.load()
        for _, ref in record.tensors():
            if ref.reason is None:
                ref.load()
        count += 1
    return count


TRAIN = program(__file__, "_train")


@pytest.mark.parametrize("when", [3, 12])
def test_kill_9_loses_at_most_the_last_step(when):
    run = subprocess.Popen([sys.executable, "-c", TRAIN], stdout=subprocess.PIPE, text=True)
    folder = run.stdout.readline().strip()
    while int(run.stdout.readline()) < when:
        pass
    time.sleep(0.003)  # somewhere inside a step
    run.send_signal(signal.SIGKILL)
    rest = run.stdout.read().split()
    run.wait()
    last = int(rest[-1]) if rest else when
    found = captures.open(folder)
    assert not found.finished
    per_step = {}
    for record in found:
        per_step.setdefault(record.step, []).append(record.op)
    # Step `last` ended; it may be lost, those before may not.
    for step in range(1, last):
        assert per_step[step] == per_step[1], f"step {step} of {last}"
    assert readable(found) == sum(map(len, per_step.values()))


def test_truncation_anywhere_leaves_the_rest():
    folder = small_capture()
    log = os.path.join(folder, captures.LOG)
    with open(log, "rb") as file:
        whole = file.read()
    complete = list(captures.open(folder))
    counts = set()
    for size in [*range(16, len(whole), 61), len(whole) - 1]:
        with open(log, "wb") as file:
            file.write(whole[:size])
        try:
            found = captures.open(folder)
        except captures.CaptureError:
            assert size < 400  # not even the head
            continue
        numbers = [record.number for record in found]
        assert numbers == [record.number for record in complete][: len(numbers)]
        assert readable(found) == len(numbers)
        counts.add(len(numbers))
        assert not found.finished
    assert counts == set(range(len(complete) + 1))


def test_a_truncated_frame_is_said():
    folder = small_capture()
    log = os.path.join(folder, captures.LOG)
    os.truncate(log, os.path.getsize(log) - 5)
    (problem,) = captures.open(folder).problems
    assert "records.oplog: byte " in problem and "ends inside a frame" in problem


def test_damage_in_the_middle_costs_what_it_hit():
    folder = small_capture()
    log = os.path.join(folder, captures.LOG)
    with open(log, "rb") as file:
        whole = file.read()
    complete = len(captures.open(folder))
    for at in range(500, len(whole) - 200, 97):
        bad = bytearray(whole)
        bad[at] ^= 0x55
        with open(log, "wb") as file:
            file.write(bad)
        found = captures.open(folder)
        assert found.problems, at
        good = bad_records = 0
        for record in found:
            try:
                for _, ref in record.tensors():
                    if ref.reason is None:
                        ref.load()
                good += 1
            except captures.CaptureError:
                bad_records += 1  # its blob's place was in the damaged frame
        assert good + bad_records >= complete - 1
        assert good >= complete - 3


def test_damaged_and_missing_packs_are_named():
    folder = small_capture()
    pack = os.path.join(folder, "pack-00000.safetensors")
    found = captures.open(folder)
    record = next(found.select(op="aten::neg"))
    with open(pack, "r+b") as file:
        file.seek(found._blobs[record.args[0].hash][1] + 3)
        file.write(b"!")
    with pytest.raises(captures.CaptureError, match="are not those of blob"):
        record.args[0].load()
    record.outputs[0].load()  # the rest is still read
    os.truncate(pack, 65_600)
    with pytest.raises(captures.CaptureError, match="expected for blob"):
        list(found)[-1].outputs[0].load()
    os.remove(pack)
    with pytest.raises(captures.CaptureError, match=r"pack-00000.safetensors is missing"):
        record.outputs[0].load()


@pytest.mark.parametrize(
    "content", [b"", b"x" * 100, b"PK\x03\x04" + b"\0" * 500, b"OPFR" + b"\xff" * 300]
)
def test_foreign_files_are_refused_with_a_sentence(tmp_path, content):
    (tmp_path / captures.LOG).write_bytes(content)
    with pytest.raises(captures.CaptureError, match="is no record log of op_tools"):
        captures.open(str(tmp_path))


def test_foreign_frames_with_good_checksums(tmp_path):
    """Whole frames, and nothing we would have written: no crash, and said."""
    import random
    import zlib

    folder = small_capture()
    log = os.path.join(folder, captures.LOG)
    with open(log, "rb") as file:
        whole = file.read()
    random.seed(1)
    frames = b""
    for _ in range(300):
        kind = random.randrange(1, 8)
        payload = random.randbytes(random.randrange(40))
        if random.random() < 0.3:  # lengths far beyond the end
            payload = bytes([random.choice([0xDD, 0xDF, 0xDB, 0xC6, 0xC9])]) + b"\xff" * 4 + payload
        checksum = zlib.crc32(bytes([kind]) + payload)
        frames += b"OPFR" + struct.pack("<III", len(payload), checksum, kind) + payload
    frames += (
        b"OPFR" + struct.pack("<III", 99, zlib.crc32(b"\x04" + b"\x91" * 99), 4) + b"\x91" * 99
    )
    with open(log, "wb") as file:
        file.write(whole + frames)
    found = captures.open(folder)
    ops = [record.op for record in found]
    assert ops.count("aten::neg") == 6
    assert found.problems


def test_no_capture_here_and_which_of_several(tmp_path):
    with pytest.raises(captures.CaptureError, match=r"is no capture: it has no records.oplog"):
        captures.open(str(tmp_path))
    first, second = small_capture(), small_capture()
    assert captures.find("op_tools_results") == sorted([first, second])
    with pytest.raises(captures.CaptureError, match="holds 2 captures: name one"):
        captures.open("op_tools_results")


def test_a_newer_format_is_refused(tmp_path):
    writer = _C.CaptureWriter(str(tmp_path), {"format": "op_tools capture", "version": "3"})
    writer.close()
    with pytest.raises(captures.CaptureError, match="version 3 of the format"):
        captures.open(str(tmp_path))


LIMITED = """
import resource, sys, torch, op_tools
tool = op_tools.OpCapture()
tool.start()
print(tool.folder, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
total = 0.0
for i in range(60):
    total += torch.full((30_000,), float(i)).neg().sum().item()
tool.stop()
print("trained", total)
"""


@pytest.mark.parametrize("limit", [70_000, 1_500_000, 2_000_001])
def test_a_full_disk_stops_the_capture_and_nothing_else(limit):
    """RLIMIT_FSIZE: writing a file beyond a size fails, in the middle of a write."""
    run = interpreter.run(
        ["-c", LIMITED.format(limit=limit)],
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    folder, *_, trained = run.stdout.strip().splitlines()
    assert trained == f"trained {-30_000.0 * sum(range(60))}"
    assert run.stderr.count("OpCapture: stopped capturing, the program goes on") == 1
    assert "File too large" in run.stderr
    found = captures.open(folder)
    assert found.problems == []
    whole = readable(found)
    assert whole == len(found) < 240
    # A turn of four calls has two tensors of 120 KB; 64 KB of a file are its head. All turns whose
    # tensors fit are there, however many calls were written at once.
    turns = (limit - 65_536) // 240_000
    assert whole == 0 if turns == 0 else 4 * turns <= whole < 4 * turns + 4
    if whole:
        assert [record.op for record in found][:2] == ["aten::full", "aten::neg"]
    from safetensors.torch import load_file

    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            load_file(os.path.join(folder, name))
        else:
            assert name in (captures.LOG, results.THREADS)


def test_no_space_left(tmp_path):
    """A file system that is full: the log and the packs share what is left."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system here")
    try:
        env = dict(os.environ, OP_CAPTURE_DIR=str(disk), OP_CAPTURE_MIN_FREE_MB="0")
        code = LIMITED.replace("resource.setrlimit", "(lambda *_: 0)").format(limit=0)
        run = interpreter.run(["-c", code], env=env, timeout=120)
        assert run.returncode == 0, run.stderr
        assert run.stderr.count("OpCapture: stopped capturing") == 1
        assert "No space left on device" in run.stderr
        found = captures.open(str(disk))
        assert found.problems == [] and 20 <= readable(found) < 240
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_the_floor_of_free_disk(capfd):
    tool = op_tools.OpCapture()
    tool.min_free_mb = (shutil.disk_usage(".").free >> 20) + 1000
    with tool:
        for i in range(10):
            torch.full((100,), float(i)).neg()
            tool._core.drain()
    err = capfd.readouterr().err
    assert err.count("stopped capturing") == 1 and "MiB left, less than" in err
    assert captures.open(tool.folder).problems == []


def test_a_folder_that_cannot_be_made(monkeypatch):
    open("taken", "w").close()
    monkeypatch.setenv("OP_CAPTURE_DIR", "taken")
    tool = op_tools.OpCapture()
    with pytest.raises(OSError, match="taken"):
        tool.start()
    assert not tool.is_running and os.path.getsize("taken") == 0
    monkeypatch.setenv("OP_CAPTURE_DIR", "free")
    with tool:
        torch.ones(3).neg()
    assert readable(captures.open(tool.folder)) == 2
