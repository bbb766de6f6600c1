# SPDX-License-Identifier: Apache-2.0
"""module_tools and process_monitor."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from op_tools import process_monitor
from op_tools.module_tools import CompLayerAcc, compare_accuracy, metrics
from torch import nn


class Twice(nn.Module):
    """A layer that is used twice in a step."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.layer(self.act(self.layer(x)))


def run(device, expected, fixed=False, wrong=False, steps=1):
    torch.manual_seed(0)
    model = nn.Sequential(Twice(), nn.Linear(4, 2))
    if wrong:
        with torch.no_grad():
            model[0].layer.weight[0, 0] += 1
    model = model.to(device)
    tool = CompLayerAcc(model, expected, fixed, "dump")
    assert tool.insert_hook() is model
    for _ in range(steps):
        x = torch.linspace(-1, 1, 12).view(3, 4).to(device).requires_grad_()
        model(x).square().sum().backward()
    tool.remove_hook()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return model


def column(rows, start):
    return [json.loads(row[key]) for row in rows for key in row if key.startswith(start)]


def test_equal_runs(device, capsys):
    run(device, True)
    run("cpu", False)
    rows = compare_accuracy("dump")
    names = [row["layer_name"] for row in rows]
    assert names[:2] == ["Sequential", "Sequential.0"]  # as they ran
    assert set(names) == {
        "Sequential",
        "Sequential.0",
        "Sequential.0.layer",
        "Sequential.0.layer..1",
        "Sequential.0.act",
        "Sequential.1",
    }
    assert all(cell["allclose"] == 1 for cell in column(rows, "forward") + column(rows, "backward"))
    assert "No.(rank0)" in capsys.readouterr().out
    for name in ("modules_full_name.txt", "modules_full_name_run.txt"):
        assert "Sequential.0.layer" in Path("dump/rank0/expected", name).read_text().splitlines()
    dumped = torch.load("dump/rank0/expected/forward/Sequential.1.pt", weights_only=True)
    assert dumped["layer_name"] == "Sequential.1" and dumped["output"].device.type == "cpu"


def test_the_wrong_layer_is_named_with_fixed_input(device, capsys):
    run(device, True)
    run(device, False, wrong=True)
    rows = compare_accuracy("dump")
    assert column(rows, "forward")[-1]["allclose"] == 0
    run(device, False, fixed=True, wrong=True)
    rows = {row["layer_name"]: row for row in compare_accuracy("dump")}
    cells = {name: column([row], "forward")[0] for name, row in rows.items()}
    assert cells["Sequential.1"]["allclose"] == cells["Sequential.0.act"]["allclose"] == 1
    bad = cells["Sequential.0.layer"]
    assert bad["allclose"] == 0 and bad["max_diff"] > 0.1 and 0 < bad["share_outside"] <= 1
    assert bad["relative"] > 0 and abs(bad["expected"] - bad["real"]) == bad["max_diff"]


def test_steps_and_ranks_are_kept_apart(device, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    run(device, True, steps=2)
    monkeypatch.setenv("RANK", "2")
    run(device, True, steps=1)
    assert Path("dump/rank1/expected/forward/Sequential.1..1.pt").exists()
    assert not Path("dump/rank2/expected/forward/Sequential.1..1.pt").exists()
    assert Path("dump/rank1/expected/backward/Sequential.1.pt").exists()


def test_what_is_on_one_side_only_and_what_cannot_be_read(device, capsys):
    run(device, True, steps=2)
    run(device, False, steps=1)
    Path("dump/rank0/real/forward/Sequential.1.pt").write_bytes(b"broken")
    rows = compare_accuracy("dump")
    text = capsys.readouterr().out
    later = "Sequential..1 Sequential.0..1 Sequential.0.act..1 Sequential.0.layer..2 "
    later += "Sequential.0.layer..3 Sequential.1..1"
    only = re.search(r"^rank0: only in expected: (.*)$", text, re.M)
    assert sorted(only[1].split(", ")) == sorted(later.split())
    # The second call of the whole is not taken for the module called 1.
    backward = column(rows, "backward")
    assert len(backward) == 6 and all(cell["allclose"] == 1 for cell in backward)
    assert "Sequential.1.pt cannot be read" in text and len(rows) == 6


def test_metrics_of_what_does_not_fit():
    assert metrics(torch.ones(2), torch.ones(3))["allclose"] == 0
    assert (
        metrics(torch.ones(2), torch.ones(2).half())["dtype"] == "torch.float16, not torch.float32"
    )
    assert metrics(torch.empty(0), torch.empty(0)) == {"allclose": 1}
    nan = metrics(torch.tensor([1.0, 2.0]), torch.tensor([1.0, float("nan")]))
    assert nan["allclose"] == 0 and nan["outside"] == 1


def test_no_dump():
    with pytest.raises(ValueError, match="holds no dump"):
        compare_accuracy(".")


def test_process_monitor_ends_with_the_process(monkeypatch, capsys):
    monkeypatch.setenv("label", "mine")
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1.2)"])
    try:
        assert process_monitor.main(["--pid", str(child.pid), "--interval", "0.1"]) == 0
    finally:
        child.wait()
    text = capsys.readouterr().out
    path = Path(text.splitlines()[-1].removeprefix("process monitor result saved to "))
    assert f"_pid{child.pid}_mine_" in path.name
    assert path.parent == Path("op_tools_results/process_monitor_result")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert len(rows) >= 2 and float(rows[0]["rss_mb"]) > 0
    assert rows[0]["pid"] == str(child.pid) and "has ended" in text


def test_process_monitor_of_no_process(capsys):
    assert process_monitor.main(["--pid", "999999999"]) == 1
    assert "no process 999999999" in capsys.readouterr().err


def test_process_monitor_names_wrong_values(monkeypatch):
    monkeypatch.setenv("OP_TOOLS_MAX_CACHE_SIZE", "many")
    with pytest.raises(ValueError, match="OP_TOOLS_MAX_CACHE_SIZE='many'"):
        process_monitor.monitor(os.getpid())


def test_process_monitor_has_the_same_columns_throughout(monkeypatch, tmp_path):
    """Where the vendor's command answers late, or is not there."""
    answers = iter([TimeoutError, f"{os.getpid()}, 7\n", ""])

    class Done:
        def __init__(self, text):
            self.stdout = text

    def run(*_, **__):
        answer = next(answers)
        if answer is TimeoutError:
            raise subprocess.TimeoutExpired("nvidia-smi", 10)
        return Done(answer)

    monkeypatch.setattr(process_monitor.shutil, "which", lambda name: name)
    monkeypatch.setattr(process_monitor.subprocess, "run", run)
    found = [process_monitor.device_memory(os.getpid()) for _ in range(3)]
    assert found == [{"device_memory_mb": mb} for mb in ("-", 7.0, "-")]
    monkeypatch.setattr(process_monitor.shutil, "which", lambda name: None)
    assert process_monitor.device_memory(os.getpid()) == {"device_memory_mb": "-"}


class Named(torch.nn.Module):
    def forward(self, x, *, scale, more):
        return x * scale + more[0]


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Named()

    def forward(self, x, scale):
        return self.inner(x, scale=scale, more=[x, 3])


def test_fixed_inputs_by_name_and_in_lists():
    model, x = Outer(), torch.ones(2)
    CompLayerAcc(model, True, False, "dump").insert_hook()(x, torch.tensor(2.0))
    real = Outer()
    CompLayerAcc(real, False, True, "dump").insert_hook()
    got = real(torch.zeros(2), torch.tensor(5.0))
    assert got.tolist() == [3, 3]  # 1 * 2 + 1: every module's input is the dumped one


def test_inserted_twice_dumps_once():
    model = torch.nn.Linear(2, 2)
    dump = CompLayerAcc(model, data_path="dump")
    dump.insert_hook()
    dump.insert_hook()
    model(torch.ones(1, 2))
    assert [path.name for path in Path("dump/rank0/expected/forward").iterdir()] == ["Linear.pt"]


def test_the_order_is_that_of_the_newest_run():
    Path("dump/rank0/expected").mkdir(parents=True)
    Path("dump/rank0/expected/modules_full_name_run.txt").write_text("stale\n")
    model = torch.nn.Linear(2, 2)
    CompLayerAcc(model, data_path="dump").insert_hook()(torch.ones(1, 2)).sum().backward()
    assert Path("dump/rank0/expected/modules_full_name_run.txt").read_text() == "Linear\n"


def test_a_foreign_file_does_not_end_the_report(capsys):
    for side, content in (("expected", {"output": torch.ones(2)}), ("real", [1, 2])):
        for name in ("a", "b"):
            path = Path("dump/rank0", side, "forward", f"{name}.pt")
            path.parent.mkdir(parents=True, exist_ok=True)
            torch.save(content if name == "a" else {"layer_name": "b"}, path)
    rows = compare_accuracy("dump")
    assert [row["layer_name"] for row in rows] == ["a", "b"]
    assert all(list(row.values())[2] == "-" for row in rows)
    assert "a.pt cannot be read" in capsys.readouterr().out


def test_a_first_layer_has_a_backward_too():
    """Its input needs no gradient; what it receives is dumped, as ditorch's hooks have it."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    CompLayerAcc(model, data_path="dump").insert_hook()(torch.ones(1, 2)).sum().backward()
    folder = Path("dump/rank0/expected/backward")
    assert {path.name for path in folder.iterdir()} == {
        "Sequential.pt",
        "Sequential.0.pt",
        "Sequential.1.pt",
    }
    first = torch.load(folder / "Sequential.0.pt", weights_only=True)
    assert first["grad_input"] == (None,) and first["grad_output"][0].shape == (1, 2)
