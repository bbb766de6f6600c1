# SPDX-License-Identifier: Apache-2.0
"""Captures with values no writer of ours would give: the reader says which, and reads the rest."""

import os
import random
import shutil

import op_tools
import pytest
import torch
from op_tools import captures
from op_tools.captures import judging
from op_tools.cli import main
from op_tools.core import untrusted_worker
from record_logs import Ext, append, frames_of, tensor, write_log, write_payloads

SIN = ["op", 1, "aten::sin", "aten::sin(Tensor self) -> Tensor"]
OTHER_SIN = ["op", 77, *SIN[2:]]


pytestmark = pytest.mark.usefixtures("on_cpu")


def record(number, *args):
    return (4, {"number": number, "op": 77, "args": list(args), "out": []})


@pytest.mark.parametrize(
    "wrong",
    [
        {"s": [7]},
        {"s": [2, 3], "t": [4, 1]},
        {"s": [6], "t": [1 << 40]},
        {"s": [1 << 40], "t": [1]},
        {"s": [1 << 62, 4], "t": [1, 1]},
        {"d": "float64", "s": [4]},
        {"d": "complex128", "s": [2]},
        {"s": [5], "f": 16},
        {"s": [1 << 50], "t": [2], "f": 16},
    ],
    ids=str,
)
def test_a_view_beyond_its_contents(whole, wrong, capsys):
    folder, ref = whole
    append(folder, (2, OTHER_SIN), record(900, tensor(ref, **wrong)))
    append(folder, record(901, tensor(ref)))
    found = {r.number: r for r in captures.open(folder)}
    with pytest.raises(captures.CaptureError) as told:
        found[900].load()
    assert captures.LOG in str(told.value) and "record 900" in str(told.value)
    assert found[901].load()[0][0].tolist() == list(range(6))
    assert main(["show", folder, "900"]) == 1
    assert main(["replay", folder, "--device", "cpu"]) == 1
    assert main(["report", folder, "--judge"]) in (0, 1)
    assert "record 900" in capsys.readouterr().out


def test_a_captured_result_that_is_damaged_is_no_agreement(whole, capsys):
    folder, ref = whole
    call = record(900, tensor(ref))
    call[1]["out"] = [tensor(ref, s=[7])]
    append(folder, (2, OTHER_SIN), call)
    assert main(["replay", folder, "--device", "cpu", "--op", "aten::sin"]) == 1
    text = capsys.readouterr().out
    assert "1 agree, 1 differ or failed" in text and "record 900" in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"s": [-1]},
        {"s": ["6"]},
        {"s": [6, 1]},
        {"t": "1"},
        {"d": "load"},
        {"d": "no_such"},
        {"f": "1"},
        {"h": "text"},
        {"n": None},
        {"v": 3},
    ],
    ids=str,
)
def test_a_tensor_that_is_none(whole, wrong):
    folder, ref = whole
    before = len(list(captures.open(folder)))
    append(folder, (2, OTHER_SIN), record(900, tensor(ref, **wrong)), record(901, tensor(ref)))
    found = captures.open(folder)
    assert len(list(found)) == before + 1
    (problem,) = found.problems
    assert captures.LOG in problem and "cannot be read" in problem


@pytest.mark.parametrize(
    "frame",
    [
        (2, ["op", [1], "aten::sin", ""]),
        (2, ["op", 1, 5, ""]),
        (2, {"op": 1}),
        (3, ["text", 0, 0, 4]),
        (3, [b"0" * 16, "0", 0, 4]),
        (3, [b"0" * 16, 0, -1, 4]),
        (3, [b"0" * 16]),
        (5, {"after": {}}),
        (5, {"number": 1, "after": 3}),
        (6, {"unread": [1]}),
        (6, []),
    ],
    ids=str,
)
def test_a_frame_that_is_none(frame, capsys):
    folder = write_log("odd", (2, SIN), frame, (4, {"number": 1, "op": 1, "args": [], "out": []}))
    found = captures.open(folder)
    assert [r.op for r in found] == ["aten::sin"]
    (problem,) = found.problems
    assert f"a frame of kind {frame[0]} cannot be read" in problem
    assert main(["ls", folder]) == 1
    assert main(["report", folder]) == 1


def test_a_blob_larger_than_its_pack(whole):
    """Memory is not asked for before the file is looked at."""
    folder, ref = whole
    name = bytes(range(16))
    append(folder, (3, [name, 0, 8, 1 << 50]))
    append(folder, record(900, tensor(ref, h=name, n=1 << 50, s=[1 << 48])))
    found = next(r for r in captures.open(folder) if r.number == 900)
    with pytest.raises(captures.CaptureError, match="are there"):
        found.load()


SUM = (
    "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, "
    "ScalarType? dtype=None) -> Tensor"
)


@pytest.mark.parametrize("number", [-1, 127])
def test_a_number_where_a_dtype_belongs(whole, number, capsys):
    """PyTorch takes it for one of its own, and reads past its tables of dtypes."""
    folder, ref = whole
    call = {"number": 900, "op": 78, "args": [tensor(ref), [0], True, number], "out": [tensor(ref)]}
    append(folder, (2, ["op", 78, "aten::sum.dim_IntList", SUM]), (4, call))
    odd = next(r for r in captures.open(folder) if r.number == 900)
    with untrusted_worker.Apart("judge", {}, timeout=20) as worker:
        found = judging.judged_by(worker)(odd)
    why = f"its dtype is {number}, which is not a torch.dtype"
    assert found["verdict"] == "skip" and found["reason"] == why
    flags = ["--device", "cpu", "--op", "aten::sum", "--timeout", "20"]
    assert main(["replay", folder, *flags]) == 1
    assert why in capsys.readouterr().out


@pytest.mark.parametrize("end", ["\ufffd", "\ufffd)", "(\ufffd)"])
def test_a_schema_that_is_none_is_told_also_where_pytorch_has_no_words(end):
    """Cut in the middle of a character, PyTorch's message is no text, or empty."""
    schema = f"aten::view(Tensor(a) self, SymInt[] size) -> Tensor{end}"
    with pytest.raises(captures.CaptureError, match=r"is no schema of an operator: \S"):
        captures.arguments_of(schema)


@pytest.mark.parametrize("seed", range(4))
def test_bytes_changed_anywhere(seed):
    """Under right checksums: every record is read, or said to be unreadable."""
    choose = random.Random(seed)
    weight = torch.nn.Linear(4, 3)
    tool = op_tools.OpCapture()
    with tool:
        weight(torch.ones(2, 4)).square().sum().backward()
    payloads = frames_of(tool.folder)
    read = refused = 0
    with untrusted_worker.Apart(
        "judge", {}
    ) as worker:  # where a kernel may crash on what it is given
        judge = judging.judged_by(worker)
        for turn in range(60):
            changed = [(kind, bytearray(payload)) for kind, payload in payloads]
            for _ in range(3):
                payload = choose.choice(changed)[1]
                odd = choose.choice([0xC0, 0xC3, 0x90, 0x80, 0xFF, 0x00, choose.randrange(256)])
                payload[choose.randrange(len(payload))] = odd
            folder = shutil.copytree(tool.folder, f"turn{turn}")
            write_payloads(folder, changed)
            try:
                found = captures.open(folder)
                for call in found:
                    try:
                        call.load(), call.load_outputs(), judge(call), call.signature()
                        read += 1
                    except captures.CaptureError:
                        refused += 1
                refused += len(found.problems)
            except captures.CaptureError:
                refused += 1
    assert read > 300 and refused > 30  # both happened


# ---- devices of plugins that are not here ------------------------------------------
FULL = (
    "aten::full(SymInt[] size, Scalar fill_value, *, ScalarType? dtype=None, Layout? layout=None, "
    "Device? device=None, bool? pin_memory=None) -> Tensor"
)


def of_another_device():
    args = [[3], 2.0, None, None, Ext(3, "moon:1"), None]
    made = {"d": "float32", "v": "moon:1", "s": [3], "t": [1], "f": 0, "w": "not asked for"}
    return write_log(
        "moon",
        (2, ["op", 1, "aten::full", FULL]),
        (4, {"number": 1, "op": 1, "args": args, "out": [Ext(1, made)]}),
    )


def test_a_device_that_is_not_here_is_read(capsys):
    folder = of_another_device()
    found = captures.open(folder)
    (call,) = found
    assert found.problems == []
    assert isinstance(call.args[4], captures.Device)
    assert (
        repr(call.args[4]) == "device(type='moon', index=1)" and str(call.args[4].text) == "moon:1"
    )
    assert main(["ls", folder]) == 0 and main(["show", folder, "1"]) == 0
    assert "device(type='moon', index=1)" in capsys.readouterr().out


def test_it_becomes_the_device_of_the_replay(device, capsys):
    folder = of_another_device()
    (call,) = captures.open(folder)
    assert call.load(device)[1]["device"] == torch.device(device)
    args, kwargs = call.load("cpu", named=device)
    assert captures.resolve(call.op)(*args, **kwargs).device.type == device
    assert main(["replay", folder, "--device", device]) == 0
    text = capsys.readouterr().out
    assert f"1 call on {device}" in text and ", 0 differ or failed" in text


def test_a_device_as_it_prints():
    assert repr(captures.Device("moon")) == "device(type='moon')"
    assert repr(captures.Device("moon")) == repr(torch.device("cpu")).replace("cpu", "moon")
    assert repr(captures.Device("moon:2")) == repr(torch.device("cpu:2")).replace("cpu", "moon")


def test_a_replay_runs_where_it_is_told(accelerator, monkeypatch):
    """A device among the arguments is the one asked for, not the cpu its tensors are read to."""
    from op_tools.run_op_from_data import cases

    tool = op_tools.OpCapture()
    with tool:
        torch.full((3,), 2.0, device=accelerator)
    ((_, case, _),) = [c for c in cases(tool.folder, accelerator) if c[1].name == "aten::full"]
    assert case.kwargs["device"].type == accelerator
    assert os.path.isdir(tool.folder)
