# SPDX-License-Identifier: Apache-2.0
"""torch_npu.profiler: Ascend's options and Ascend's folder."""

import csv
import json
import os
import re

import pytest
import torch
import torch_npu
from torch_npu import profiler as npu_profiler
from traces import Trace

FOLDER = re.compile(r"[\w.-]+_\d+_\d{17}_ascend_pt")
OUTPUT = "ASCEND_PROFILER_OUTPUT"
# As Ascend's documents list them.
COLUMNS = {
    "operator_details.csv": (
        "Name, Input Shapes, Call Stack, Host Self Duration(us), Host Total Duration(us), "
        "Device Self Duration(us), Device Total Duration(us), Device Self Duration With AICore(us), "
        "Device Total Duration With AICore(us)"
    ),
    "op_statistic.csv": (
        "OP Type, Core Type, Count, Total Time(us), Min Time(us), Avg Time(us), Max Time(us), Ratio(%)"
    ),
    "step_trace_time.csv": (
        "Device_id, Step, Computing, Communication(Not Overlapped), Overlapped, Communication, Free, "
        "Stage, Bubble, Communication(Not Overlapped and Exclude Receive), Preparing"
    ),
    "kernel_details.csv": (
        "Step Id, Device_id, Name, Type, Accelerator Core, Start Time(us), Duration(us), "
        "Wait Time(us), Block Num"
    ),
}


def work(net, x):
    net(x).sum().backward()


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4)).to(
        "npu"
    )


@pytest.fixture
def written(net, tmp_path):
    """A profile of two steps, in a folder."""
    x = torch.randn(8, 16, device="npu")
    with npu_profiler.profile(
        activities=[npu_profiler.ProfilerActivity.CPU, npu_profiler.ProfilerActivity.NPU],
        schedule=npu_profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=npu_profiler.tensorboard_trace_handler(str(tmp_path), worker_name="me"),
        record_shapes=True,
        profile_memory=True,
        experimental_config=npu_profiler._ExperimentalConfig(
            profiler_level=npu_profiler.ProfilerLevel.Level1
        ),
    ) as prof:
        prof.add_metadata("model", "mlp")
        for _ in range(5):
            work(net, x)
            prof.step()
    (folder,) = tmp_path.iterdir()
    return folder


def rows(folder, name):
    with open(folder / OUTPUT / name, newline="") as file:
        return list(csv.DictReader(file))


def test_names_of_files_and_columns(written):
    assert FOLDER.fullmatch(written.name)
    assert written.name.startswith(f"me_{os.getpid()}_")
    for name, columns in COLUMNS.items():
        header = (written / OUTPUT / name).read_text().splitlines()[0]
        assert header.replace(",", ", ").startswith(columns), name
    view = json.loads((written / OUTPUT / "trace_view.json").read_text())
    assert isinstance(view, list)
    info = json.loads((written / "profiler_info.json").read_text())
    assert info["rank_id"] == -1
    assert info["config"]["common_config"]["record_shapes"] is True
    assert info["config"]["experimental_config"]["_profiler_level"] == "Level1"
    assert json.loads((written / "profiler_metadata.json").read_text()) == {"model": "mlp"}


def test_tables_agree_with_the_trace(written):
    trace = Trace(written / OUTPUT / "trace_view.json")
    trace.check()
    kernels = rows(written, "kernel_details.csv")
    assert len(kernels) == len(trace.of("kernel"))
    total = sum(float(k["Duration(us)"]) for k in kernels)
    assert total == pytest.approx(
        sum(k["dur"] for k in trace.of("kernel")), abs=0.01 * len(kernels)
    )
    statistic = rows(written, "op_statistic.csv")
    assert sum(int(r["Count"]) for r in statistic) == len(kernels)
    assert sum(float(r["Ratio(%)"]) for r in statistic) == pytest.approx(100, abs=0.1)
    assert "Addmm" in {r["OP Type"] for r in statistic}
    ops = rows(written, "operator_details.csv")
    own = sum(float(op["Device Self Duration(us)"]) for op in ops)
    everything = sum(w["dur"] for w in trace.work)
    assert own == pytest.approx(everything, abs=0.01 * len(trace.work) + 0.01)
    linear = [op for op in ops if op["Name"] == "aten::linear"]
    assert linear and all(float(op["Device Total Duration(us)"]) > 0 for op in linear)
    assert "8,16" in linear[0]["Input Shapes"]


def test_steps(written):
    steps = rows(written, "step_trace_time.csv")
    assert [row["Step"] for row in steps] == ["2", "3"]
    for row in steps:
        parts = {
            key: float(row[key])
            for key in ("Computing", "Communication", "Free", "Stage", "Preparing")
        }
        assert parts["Communication"] == 0
        assert parts["Computing"] > 0
        assert parts["Computing"] + parts["Free"] == pytest.approx(parts["Stage"], abs=0.01)
        assert 0 <= parts["Preparing"] < parts["Stage"]
    assert {k["Step Id"] for k in rows(written, "kernel_details.csv")} == {"2", "3"}


def test_memory_record(written):
    record = rows(written, "memory_record.csv")
    assert record and {r["Device Type"] for r in record} == {"NPU:0"}
    assert all(float(r["Total Reserved(MB)"]) >= float(r["Total Allocated(MB)"]) for r in record)


def test_analyse_later(net, tmp_path):
    handler = npu_profiler.tensorboard_trace_handler(str(tmp_path), analyse_flag=False)
    with npu_profiler.profile(on_trace_ready=handler):
        work(net, torch.randn(8, 16, device="npu"))
    (folder,) = tmp_path.iterdir()
    assert not (folder / OUTPUT).exists()
    from torch_npu.profiler.profiler import analyse

    analyse(str(tmp_path))
    assert rows(folder, "kernel_details.csv")
    assert "Step Id" not in rows(folder, "kernel_details.csv")[0]  # there were none


def test_it_is_torchs_profile_too(net):
    with npu_profiler.profile() as prof:
        work(net, torch.randn(8, 16, device="npu"))
    assert "Self NPU" in prof.key_averages().table(sort_by="self_device_time_total")


def test_level_none_records_the_host_alone(net, tmp_path):
    config = npu_profiler._ExperimentalConfig(profiler_level=npu_profiler.ProfilerLevel.Level_none)
    with npu_profiler.profile(experimental_config=config) as prof:
        work(net, torch.randn(8, 16, device="npu"))
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    assert Trace(tmp_path / "t.json").work == []


def test_domains_of_mstx(tmp_path):
    config = npu_profiler._ExperimentalConfig(mstx=True, mstx_domain_include=["mine"])
    with npu_profiler.profile(experimental_config=config) as prof:
        with torch.npu.mstx.mstx_range("seen", domain="mine"):
            pass
        with torch.npu.mstx.mstx_range("unseen", domain="others"):
            pass
    prof.export_chrome_trace(str(tmp_path / "t.json"))
    names = {e["name"] for e in Trace(tmp_path / "t.json").of("user_annotation")}
    assert "seen" in names and "unseen" not in names


def test_what_no_device_here_measures_is_said():
    with pytest.warns(UserWarning, match="aic_metrics, l2_cache: not recorded"):
        npu_profiler._ExperimentalConfig(
            aic_metrics=npu_profiler.AiCMetrics.PipeUtilization, l2_cache=True
        )


def test_overlap_of_compute_and_communication():
    """Times that can be added up in the head."""
    from torch_npu.profiler import tables

    assert tables.merged([(5, 6), (0, 2), (1, 3)]) == [(0, 3), (5, 6)]
    assert tables.common([(0, 10)], [(2, 3), (5, 20)]) == 6
    assert tables.common([(0, 1)], [(1, 2)]) == 0
    assert tables.length([(0, 3), (5, 6)]) == 4


def test_dynamic_profile(net, tmp_path):
    from torch_npu.profiler import dynamic_profile as dp

    x = torch.randn(8, 16, device="npu")
    dp.init(str(tmp_path / "config"))
    file = tmp_path / "config" / "profiler_config.json"
    config = json.loads(file.read_text())
    config.update(
        prof_dir=str(tmp_path / "out"), analyse=True, active=2, warmup=1, metadata={"a": "b"}
    )

    def train(steps):
        for _ in range(steps):
            work(net, x)
            dp.step()

    train(2)
    assert not (tmp_path / "out").exists()
    file.write_text(json.dumps(config))
    os.utime(file, ns=(1, 1))  # another time than before, whatever the clock's grain
    train(6)
    (folder,) = (tmp_path / "out").iterdir()
    assert len(rows(folder, "step_trace_time.csv")) == 2
    train(3)
    assert len(list((tmp_path / "out").iterdir())) == 1  # once per change of the file
    file.write_text("{ no json")
    os.utime(file, ns=(2, 2))
    with pytest.warns(UserWarning, match="No profile is made"):
        train(1)
    file.write_text(json.dumps({**config, "active": "many"}))
    os.utime(file, ns=(3, 3))
    with pytest.warns(UserWarning, match="active: 'many' is no number"):
        train(1)


WRONG = [
    {"experimental_config": []},
    {"experimental_config": None},
    {"experimental_config": {"profiler_level": "Level9"}},
    {"experimental_config": {"profiler_level": {}}},
    {"experimental_config": {"aic_metrics": ["x"]}},
    {"experimental_config": {"export_type": [{}]}},
    {"experimental_config": {"gc_detect_threshold": "much"}},
    {"experimental_config": {"no_such": 1}},
    {"metadata": [1, 2]},
    {"metadata": 5},
    {"activities": 5},
    {"activities": [[]]},
    {"is_rank": True, "rank_list": 0},
    {"prof_dir": 7},
    {"start_step": "soon"},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_file_of_dynamic_profile_does_not_end_the_training(tmp_path, wrong):
    from torch_npu.profiler import dynamic_profile as dp

    dp.init(str(tmp_path / "config"))
    file = tmp_path / "config" / "profiler_config.json"
    file.write_text(json.dumps({"prof_dir": str(tmp_path / "out"), **wrong}))
    os.utime(file, ns=(1, 1))
    with pytest.warns(UserWarning, match="No profile is made"):
        dp.step()
    assert dp._dynamic.running is None
    dp.step()


def test_names_are_there():
    for name in npu_profiler.__all__:
        assert hasattr(npu_profiler, name)
    assert torch_npu.profiler is npu_profiler
    assert len(npu_profiler.AiCMetrics) == 9
