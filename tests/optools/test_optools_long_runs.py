# SPDX-License-Identifier: Apache-2.0
"""Runs that go on: memory stays what it was, files hold every byte, and comparing gives way where it
would make the program too slow. OPENNPU_TEST_FULL=1: 10,000 steps under each tool."""

import contextlib
import gc
import io
import os
import resource
import time
from pathlib import Path

import op_tools
import pytest
import torch
from op_tools import captures
from optools_helpers import TOOLS, quiet

FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
STEPS = 10_000 if FULL else 200
SPARE = Path("/dev/shm")  # a file system in memory: no direct writes


def resident():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def tiny_step(device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(4, 8).to(device)

    def step():
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("name", TOOLS)
def test_memory_of_a_long_run_is_bounded(name, accelerator, monkeypatch):
    """What a tool keeps has a limit, small enough here to be met in the first fifth of the run."""
    monkeypatch.setenv("OP_AUTOCOMPARE_ROWS", "1000")
    monkeypatch.setenv("OP_TIME_MEASURE_LIMIT", "1000")
    monkeypatch.setenv("OP_OBSERVE_MEMORY_MB", "1")
    step = tiny_step(accelerator)
    tool = quiet(getattr(op_tools, name)())
    with contextlib.redirect_stdout(io.StringIO()), tool:
        wait = getattr(tool, "wait", lambda: None)
        for _ in range(STEPS // 4):
            step()
        wait()
        gc.collect()
        early = resident()
        for _ in range(STEPS - STEPS // 4):
            step()
        wait()
        gc.collect()
        late = resident()
    assert late < 1.05 * early, f"{early >> 20} MiB -> {late >> 20} MiB"


# ---- files -------------------------------------------------------------------------
SIZES = [1, 4095, 4096, 4097, 100_000, (4 << 20) - 3, 4 << 20, (9 << 20) + 5, 12_345, 3]


@pytest.mark.parametrize("where", ["disk", "memory"])
def test_every_byte_of_a_capture_is_in_its_files(where, tmp_path, on_cpu, monkeypatch):
    """Of blobs that end anywhere in a sector and in a chunk, over several packs and steps."""
    safetensors = pytest.importorskip("safetensors.torch")
    if where == "memory":
        if not SPARE.is_dir():
            pytest.skip("no file system in memory here")
        monkeypatch.setenv("OP_CAPTURE_MIN_FREE_MB", "0")
    folder = tmp_path if where == "disk" else SPARE / f"op-tools-test-{os.getpid()}"
    monkeypatch.setenv("OP_CAPTURE_DIR", str(folder))
    monkeypatch.setenv("OP_CAPTURE_PACK_MB", "8")
    wanted = [torch.randint(256, (size,), dtype=torch.uint8) for size in SIZES]
    tool = quiet(op_tools.OpCapture())
    try:
        with tool:
            for step, value in enumerate(wanted):
                value.bitwise_not()
                if step % 3 == 0:
                    op_tools._C.set_step(step + 1)
        found = list(captures.open(tool.folder).select(op="aten::bitwise_not"))
        assert len(found) == len(wanted)
        for record, value in zip(found, wanted, strict=True):
            assert torch.equal(record.load()[0][0], value)
            assert torch.equal(record.load_outputs()[0], ~value)
        packs = sorted(Path(tool.folder).glob("pack-*"))
        assert len(packs) > 2 and all(path.suffix == ".safetensors" for path in packs)
        held = {name: t for path in packs for name, t in safetensors.load_file(path).items()}
        assert {len(t) for t in held.values()} >= set(SIZES)
    finally:
        if where == "memory":
            import shutil

            shutil.rmtree(folder, ignore_errors=True)


def test_contents_met_again_after_long_are_still_read(on_cpu, monkeypatch):
    """Names of contents are forgotten after a quarter of a million; here: none is stored twice."""
    tool = quiet(op_tools.OpCapture())
    x = torch.arange(64.0)
    with tool:
        for _ in range(50):
            x.sin()
    assert tool.totals()["blobs"] == 2


# ---- OpAutoCompare -----------------------------------------------------------------
def compare_small_adds(seconds):
    tool = op_tools.OpAutoCompare()
    x = torch.ones(8)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        with tool:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                for _ in range(100):
                    x + x
    return tool, said.getvalue()


def test_it_says_what_a_call_cost(on_cpu):
    tool, said = compare_small_adds(0.05)
    costs = tool.costs()
    adds = next(row for row in tool.table() if row["op"] == "aten::add.Tensor")
    assert costs["calls"] == sum(row["pass"] for row in tool.table()) >= adds["pass"] > 0
    assert costs["looking_ns"] > 0 and costs["judging_ns"] > 0 and costs["kernels_ns"] > 0
    assert costs["every"] == 1 and costs["since"] == 0
    assert "comparing took" in said and "us a call" in said and "one in" not in said


@pytest.mark.parametrize("every", [None, "1"])
def test_it_gives_way_where_the_program_would_be_too_slow(on_cpu, monkeypatch, every):
    """Unless every call was asked for."""
    monkeypatch.setenv("OP_AUTOCOMPARE_SLOWDOWN", "2")
    if every:
        monkeypatch.setenv("OP_AUTOCOMPARE_EVERY", every)
    tool, said = compare_small_adds(1.5)
    costs = tool.costs()
    not_its_turn = sum(count for _, why, count in tool.skips() if "not its turn" in why)
    if every:
        assert costs["every"] == 1 and not_its_turn == 0 and "one in" not in said
    else:
        assert costs["slowdown"] > 2 and costs["every"] > 1 and not_its_turn > 0
        assert f"one in {costs['every']} was compared" in said
