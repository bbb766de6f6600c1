# SPDX-License-Identifier: Apache-2.0
"""OpTimeMeasure: counts, phases, files. No test asserts a time, but that there is one."""

import csv
import itertools
import json
import threading
import time
from pathlib import Path

import op_tools
import torch
from op_tools import _C
from torch.nn import functional as F


def test_every_call_is_timed_in_its_phase(device, capsys):
    x = torch.randn(32, 32, device=device, requires_grad=True)
    tool = op_tools.OpTimeMeasure()
    began = time.perf_counter_ns()
    with tool:
        for _ in range(3):
            (x @ x).relu().sum().backward()
    elapsed = time.perf_counter_ns() - began
    rows = {(r["name"], r["phase"]): r for r in tool.table()}
    assert rows["aten::mm", "forward"]["count"] == 3
    assert rows["aten::mm", "backward"]["count"] == 6
    for (name, _), row in rows.items():
        # On a device views take no time; their launch does.
        view = name in ("aten::t", "aten::expand", "aten::detach")
        assert (row["p50"] > 0) == (device == "cpu" or not view)
        assert row["p50"] <= row["p99"] <= row["total"] <= elapsed / 1e6
    assert abs(sum(r["share"] for r in rows.values()) - 1) < 1e-6
    samples = tool.samples()
    assert all(0 <= s.took_ns <= elapsed and s.launch_ns > 0 for s in samples)
    assert sum(s.launch_ns for s in samples) < elapsed  # one after another
    assert (max(s.device_ns for s in samples) > 0) == (device != "cpu")
    text = capsys.readouterr().out
    assert "aten::mm" in text and "op elasped info saved to" in text


def test_csv_has_ditorchs_columns_once(device, tmp_path):
    x = torch.randn(4, device=device)
    with op_tools.OpTimeMeasure():
        x.sin()
        x.cos()
    (path,) = (tmp_path / "op_tools_results" / "op_time_measure_result").glob(
        "op_elasped_info_pid*.csv"
    )
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == (
        "name,forward_id,forward_elasped,backward_elasped,unit,input,output,grad_inputs,grad_outputs"
    ).split(",")
    assert [row[0] for row in rows[1:]] == ["aten::sin", "aten::cos"]
    assert float(rows[1][2]) > 0 and rows[1][3] == "-" and rows[1][4] == "ms"


def test_rows_are_api_calls_where_names_are_asked_for(device, monkeypatch):
    monkeypatch.setenv("OP_TIME_MEASURE_LIST", "torch.nn.functional.linear,torch.unbind")
    x = torch.randn(2, 3, 4, device=device)
    w = torch.randn(5, 4, device=device, requires_grad=True)
    tool = op_tools.OpTimeMeasure()
    with tool:
        parts = torch.unbind(F.linear(x, w))
        sum(part.sum() for part in parts).backward()
    rows = tool.rows()
    (linear,) = [r for r in rows if r["name"] == "torch.nn.functional.linear"]
    assert linear["forward"] > 0 and linear["backward"] > 0
    (unbind,) = [r for r in rows if r["name"] == "torch.unbind"]  # one row, not one per result
    # A view takes no time on a device that has a clock of its own.
    assert (unbind["forward"] > 0) == (device == "cpu")


def test_chrome_trace(device, tmp_path):
    x = torch.ones(3, device=device)
    thread = threading.Thread(target=x.cos, name="loader 7")
    tool = op_tools.OpTimeMeasure()
    with tool:
        x.sin()
        thread.start()
        thread.join()
        x.exp().t()
    tool.save_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    lanes = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes[_C.thread_number()] == "main"
    ran = [e for e in events if e["ph"] == "X"]
    launches = [e for e in ran if lanes[e["tid"]] != "device"]
    assert {"aten::sin", "aten::cos", "aten::exp", "aten::t"} <= {e["name"] for e in launches}
    assert all(e["dur"] > 0 for e in ran)
    begins = [e["ts"] for e in launches]
    assert begins == sorted(begins) and len(set(begins)) == len(begins)
    assert ("device" in lanes.values()) == (device != "cpu")
    if device != "cpu":
        kernels = [e for e in ran if lanes[e["tid"]] == "device"]
        launched = {e["args"]["number"]: e["ts"] for e in launches}
        assert {e["name"] for e in kernels} >= {"aten::sin", "aten::cos", "aten::exp"}
        assert all(e["ts"] >= launched[e["args"]["number"]] for e in kernels)
        for one, two in itertools.pairwise(kernels):
            assert two["ts"] >= one["ts"] + one["dur"] - 1e-3
        flows = [(e["ph"], e["id"]) for e in events if e["name"] == "launch"]
        assert sorted(flows) == sorted((ph, e["args"]["number"]) for e in kernels for ph in "sf")


def test_threads_have_names(device):
    """Those that live by Python's name, PyTorch's own by the system's."""
    x, done = torch.ones(3, device=device), threading.Event()
    begun = threading.Event()

    def work():
        x.cos()
        begun.set()
        done.wait(10)

    thread = threading.Thread(target=work, name="loader 7")
    tool = op_tools.OpTimeMeasure()
    with tool:
        x.sin()
        thread.start()
        begun.wait(10)
    done.set()
    thread.join()
    by_op = {s.op: tool.threads[s.thread] for s in tool.samples()}
    assert by_op["aten::sin"] == "main" and by_op["aten::cos"] == "loader 7"


def test_more_calls_than_events_in_the_pool(device):
    x = torch.ones(3, device=device)
    tool = op_tools.OpTimeMeasure()
    with tool:
        for _ in range(2500):
            x.sin()
    samples = [s for s in tool.samples() if s.op == "aten::sin"]
    assert len(samples) == 2500
    if device != "cpu":
        assert all(s.device_ns > 0 for s in samples)


def test_percentiles_include_the_longest_call(monkeypatch):
    """3 calls of 1, 2 and 9 ms: the 99th percentile is 9, as of any number below 100."""
    from op_tools.tools.time_measure import Sample

    def table(times):
        tool = op_tools.OpTimeMeasure()
        fields = dict.fromkeys(Sample._fields, 0)
        samples = [Sample(**{**fields, "op": "a", "phase": "b", "took_ns": t}) for t in times]
        monkeypatch.setattr(tool, "samples", lambda: samples)
        (row,) = tool.table()
        return row["p50"] * 1e6, row["p99"] * 1e6

    assert table([9, 1, 2]) == (2, 9)
    assert table([5]) == (5, 5)
    assert table([1, 9]) == (1, 9)
    assert table(range(1, 101)) == (50, 99)
    assert table(range(1, 201)) == (100, 198)


def test_table_names_module_and_line(device, capsys):
    """Of each operator, the place that took most of the time, and how many others there are."""

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(4, 4)

        def forward(self, x):
            return self.inner(x).exp()  # the line

    model = Block().to(device)
    tool = op_tools.OpTimeMeasure()
    with tool:
        x = torch.ones(3, 4, device=device)
        model(x).sum().backward()
        x.exp()
    rows = {(row["name"], row["phase"]): row for row in tool.table()}
    source = Path(__file__).read_text().splitlines()
    line = next(i for i, text in enumerate(source, 1) if text.endswith("# the line"))
    assert rows["aten::exp", "forward"]["places"] == 2
    linear = rows["aten::addmm", "forward"]["place"]
    assert linear.startswith("inner ") and linear.endswith(f"{__file__}:{line} forward"), linear
    backward = rows["aten::mm", "backward"]["place"]  # its forward call's
    assert backward == linear
    text = capsys.readouterr().out
    assert "most of it at" in text and f" inner test_optools_time.py:{line} forward" in text
    assert " and 1 more" in text
