# SPDX-License-Identifier: Apache-2.0
"""Advice about a profile: what costs time, on which line, with numbers that can be added up by hand."""

import json
import re
import sys
import unicodedata

import pytest
import torch
from opennpu import cli, words
from torch_npu import profiler as npu_profiler
from torch_npu.profiler import advice
from torch_npu.profiler.trace import Trace

HERE = __file__


@pytest.fixture(autouse=True)
def no_language_is_left_chosen():
    yield
    words.choose(None)


def event(name, cat, ts, dur, pid, tid, **args):
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": ts,
        "dur": dur,
        "pid": pid,
        "tid": tid,
        "args": args,
    }


class Recorded:
    """A trace made by hand: operators of thread 7, work of device 0."""

    def __init__(self):
        self.events = []

    def op(self, number, name, ts, dur, **args):
        args = {"External id": number, **args}
        self.events.append(event(name, "cpu_op", ts, dur, 7, 7, **args))

    def call(self, name, ts, dur, number=None, line="", work=None):
        """A call of the runtime, with the work it launches: (name, category, start, duration)."""
        correlation = len(self.events)
        args = {"correlation": correlation}
        if number is not None:
            args["External id"] = number
        if line:
            args["Call site"] = line
        self.events.append(event(name, "privateuse1_runtime", ts, dur, 7, 7, **args))
        if work is not None:
            what, category, start, took = work
            at = {"device": 0, "stream": 0, "correlation": correlation}
            if number is not None:
                at["External id"] = number
            self.events.append(event(what, category, start, took, 0, 0, **at))

    def advice(self, folder):
        path = folder / "trace.json"
        path.write_text(json.dumps({"traceEvents": self.events}))
        return advice.of(Trace(path))


def rows(found):
    return [(f.kind, f.what, f.place, f.count, round(f.us, 3)) for f in found.findings]


def test_each_kind_with_its_line_and_its_time(tmp_path):
    made = Recorded()
    # A kernel of 2 us whose operator takes 30 us on the host: 28 us are the launch.
    made.op(1, "aten::add", 0, 30)
    made.call(
        "npuLaunchKernel", 5, 10, 1, "/home/me/train.py:3 in step", ("binary.add", "kernel", 6, 2)
    )
    # A copy to the device: the operator takes 200 us.
    made.op(2, "aten::to", 40, 200)
    made.op(3, "aten::copy_", 50, 180)
    made.call("npuMemcpyAsync", 60, 90, 3, "/home/me/train.py:4 in step",
              ("Memcpy HtoD", "gpu_memcpy", 65, 80))  # fmt: skip
    # A kernel of 600 us, and item(), which waits for it.
    made.op(4, "aten::mm", 250, 20)
    made.call(
        "npuLaunchKernel", 255, 5, 4, "/home/me/train.py:5 in step", ("gemm", "kernel", 260, 600)
    )
    made.op(5, "aten::item", 280, 590)
    made.op(6, "aten::_local_scalar_dense", 285, 580)
    made.call("npuMemcpyAsync", 290, 5, 6, "/home/me/train.py:6 in step",
              ("Memcpy DtoH", "gpu_memcpy", 860, 1))  # fmt: skip
    made.call("npuStreamSynchronize", 296, 566, 6, "/home/me/train.py:6 in step")
    # The host does other things for 1139 us, then launches a kernel, and waits for it.
    made.op(7, "aten::relu", 1995, 15)
    made.call(
        "npuLaunchKernel",
        1998,
        5,
        7,
        "/home/me/train.py:9 in step",
        ("unary.relu", "kernel", 2000, 50),
    )
    made.call("npuDeviceSynchronize", 2012, 40, None, "/home/me/train.py:10 in step")
    found = made.advice(tmp_path)
    assert found.recorded_us == 2050
    assert found.busy_us == 2 + 80 + 600 + 1 + 50
    assert rows(found) == [
        ("gap", "aten::relu", "train.py:9 in step", 1, 1139.0),
        ("sync", "aten::item", "train.py:6 in step", 1, 590.0),
        ("copy", "HtoD aten::to", "train.py:4 in step", 1, 200.0),
        ("gap", "aten::mm", "train.py:5 in step", 1, 115.0),
        ("sync", "npuDeviceSynchronize", "train.py:10 in step", 1, 40.0),
        ("tiny", "aten::add", "train.py:3 in step", 1, 28.0),
    ]
    assert sum(f.share for f in found.findings if f.kind == "gap") == pytest.approx(1254 / 2050)


def test_nothing_below_the_thresholds(tmp_path):
    made = Recorded()
    made.op(1, "aten::mm", 0, 20)
    made.call("npuLaunchKernel", 1, 5, 1, work=("gemm", "kernel", 10, 100000))
    made.op(2, "aten::add", 30, 20)
    made.call("npuLaunchKernel", 31, 5, 2, work=("binary.add", "kernel", 100109.9, 9.9))
    found = made.advice(tmp_path)  # a gap of 99.9 us, and a launch of 20 us in 100 ms
    assert found.findings == []
    assert "No synchronisation, tiny kernel, copy or host gap costs 1%" in "\n".join(
        advice.lines(found)
    )


def test_a_kernel_of_the_backward_pass_has_the_line_of_the_forward(tmp_path):
    made = Recorded()
    seen = {"Sequence number": 5, "Fwd thread id": 0}
    made.op(1, "aten::mul", 0, 50, **seen)
    made.call("npuLaunchKernel", 5, 10, 1, "/m.py:8 in forward", ("binary.mul", "kernel", 6, 2))
    made.op(2, "MulBackward0", 60, 50, **{"Sequence number": 5, "Fwd thread id": 1})
    made.op(3, "aten::mul", 61, 40, **{"Sequence number": 9, "Fwd thread id": 0})
    made.call("npuLaunchKernel", 65, 10, 3, "/m.py:20 in train", ("binary.mul", "kernel", 66, 2))
    places = {f.what: f.place for f in made.advice(tmp_path).findings}
    assert places == {
        "aten::mul": "m.py:8 in forward",
        "MulBackward0": "m.py:8 in forward (backward)",
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A real one, with the lines where things happen."""
    where = tmp_path_factory.mktemp("advice")
    x = torch.randn(64, 64)
    lines = {}
    with npu_profiler.profile(
        on_trace_ready=npu_profiler.tensorboard_trace_handler(str(where)), with_stack=True
    ):
        for _ in range(20):
            lines["copy"], y = sys._getframe().f_lineno, x.to("npu")
            lines["tiny"], z = sys._getframe().f_lineno, y[:4] + 1
            lines["sync"], _ = sys._getframe().f_lineno, z.sum().item()
            lines["wait"], _ = sys._getframe().f_lineno, torch.npu.synchronize()
    (folder,) = where.iterdir()
    return folder, lines


def test_the_lines_of_a_real_run(recorded):
    folder, lines = recorded
    trace = Trace(folder / "FRAMEWORK" / "torch_trace.json")
    found = advice.of(trace, worth=0.0)  # whatever else the machine does
    assert found.has_lines
    name = HERE.rpartition("/")[2]
    where = {(f.kind, f.what): f.place for f in found.findings}
    assert where["copy", "HtoD aten::to"] == f"{name}:{lines['copy']} in recorded"
    assert where["tiny", "aten::add"] == f"{name}:{lines['tiny']} in recorded"
    assert where["sync", "aten::item"] == f"{name}:{lines['sync']} in recorded"
    waits = {call.line for call in trace.host_calls if call.name == "npuDeviceSynchronize"}
    assert f"{HERE}:{lines['wait']} in recorded" in waits
    text = (folder / "ASCEND_PROFILER_OUTPUT" / "advice.txt").read_text()
    assert f"{name}:" in text and "Thresholds:" in text


def test_waits_have_lines_without_stacks(tmp_path):
    handler = npu_profiler.tensorboard_trace_handler(str(tmp_path))
    with npu_profiler.profile(on_trace_ready=handler):
        line = sys._getframe().f_lineno + 1
        torch.npu.current_stream().synchronize()
        y = torch.ones(4, device="npu") + 1
    (folder,) = tmp_path.iterdir()
    trace = Trace(folder / "FRAMEWORK" / "torch_trace.json")
    waits = [(call.name, call.line) for call in trace.host_calls if call.is_wait]
    name = test_waits_have_lines_without_stacks.__name__
    assert ("npuStreamSynchronize", f"{HERE}:{line} in {name}") in waits
    assert all(not call.line for call in trace.host_calls if not call.is_wait)
    assert y.sum().item() == 8


def wide(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("columns", ["40", "60", "100"])
def test_the_command_fits_the_terminal(tmp_path, language, columns, monkeypatch, capsys):
    made = Recorded()
    made.op(1, "aten::a_rather_long_name_of_an_operator", 0, 3000)
    made.call(
        "npuStreamSynchronize", 1, 2000, None, "/home/me/a_module_with_a_long_name.py:31 in a_step"
    )
    made.call("npuMemcpyAsync", 2100, 90, 1, "/home/me/train.py:4 in step",
              ("Memcpy HtoD", "gpu_memcpy", 2100, 80))  # fmt: skip
    (tmp_path / "x_1_1_ascend_pt").mkdir()
    made.advice(tmp_path / "x_1_1_ascend_pt")
    (tmp_path / "x_1_1_ascend_pt" / "FRAMEWORK").mkdir()
    (tmp_path / "x_1_1_ascend_pt" / "trace.json").rename(
        tmp_path / "x_1_1_ascend_pt" / "FRAMEWORK" / "torch_trace.json"
    )
    monkeypatch.setenv("COLUMNS", columns)
    assert cli.main(["--lang", language, "profile", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert max(wide(line) for line in printed.splitlines()) <= int(columns)
    joined = re.sub(r"\s", "", printed)
    assert "a_module_with_a_long_name.py:31ina_step" in joined and "train.py:4instep" in joined
    assert ("同步:npuStreamSynchronize" if language == "zh" else "sync:npuStreamSync") in joined
    assert "HtoDaten::a_rather_long_name_of_an_operator" in joined


@pytest.mark.parametrize(
    "content", ["{", "[1, 2]", '{"traceEvents": [{"ph": "X", "cat": "kernel"}]}', "\0"]
)
def test_what_is_no_trace_is_said(tmp_path, content, capsys):
    (tmp_path / "t.json").write_text(content)
    for path in (tmp_path / "t.json", tmp_path, tmp_path / "none"):
        assert cli.main(["profile", str(path)]) == 2
        assert capsys.readouterr().err.startswith("opennpu profile: ")
