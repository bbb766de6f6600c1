# SPDX-License-Identifier: Apache-2.0
"""The profile as a database: Ascend's tables and columns, filled with what the trace says."""

import json
import sqlite3

import pytest
import torch
from torch_npu import profiler as npu_profiler
from torch_npu.profiler.profiler import analyse
from traces import Trace

OUTPUT = "ASCEND_PROFILER_OUTPUT"
# As the tables of MindStudio's documents list them ("Profile Data File Reference (DB)", CANN 8.5).
COLUMNS = {
    "STRING_IDS": "id value",
    "SESSION_TIME_INFO": "startTimeNs endTimeNs",
    "NPU_INFO": "id name",
    "HOST_INFO": "hostUid hostName",
    "META_DATA": "name value",
    "RANK_DEVICE_MAP": "rankId deviceId",
    "PYTORCH_API": (
        "startNs endNs globalTid connectionId name sequenceNumber fwdThreadId inputDtypes inputShapes "
        "callchainId type"
    ),
    "CONNECTION_IDS": "id connectionId",
    "PYTORCH_CALLCHAINS": "id stack stackDepth",
    "CANN_API": "startNs endNs type globalTid connectionId name",
    "TASK": (
        "startNs endNs deviceId connectionId globalTaskId globalPid taskType contextId streamId taskId "
        "modelId"
    ),
    "COMPUTE_TASK_INFO": (
        "name globalTaskId blockNum mixBlockNum taskType opType inputFormats inputDataTypes inputShapes "
        "outputFormats outputDataTypes outputShapes attrInfo opState hf32Eligible"
    ),
    "COMMUNICATION_OP": (
        "opName startNs endNs connectionId groupName opId relay retry dataType algType count opType "
        "deviceId"
    ),
    "COMMUNICATION_TASK_INFO": (
        "name globalTaskId taskType planeId groupName notifyId rdmaType srcRank dstRank transportType "
        "size dataType linkType opId isMaster bandwidth"
    ),
    "MEMCPY_INFO": "globalTaskId size memcpyOperation",
    "MSTX_EVENTS": (
        "startNs endNs eventType rangeId category message globalTid endGlobalTid domainId connectionId"
    ),
    "STEP_TIME": "id startNs endNs",
    "MEMORY_RECORD": (
        "component timestamp totalAllocated totalReserved totalActive streamPtr deviceId"
    ),
    "OP_MEMORY": (
        "name size allocationTime releaseTime activeReleaseTime duration activeDuration "
        "allocationTotalAllocated allocationTotalReserved allocationTotalActive releaseTotalAllocated "
        "releaseTotalReserved releaseTotalActive streamPtr deviceId"
    ),
    **dict.fromkeys(
        (
            "ENUM_API_TYPE",
            "ENUM_HCCL_DATA_TYPE",
            "ENUM_HCCL_LINK_TYPE",
            "ENUM_HCCL_TRANSPORT_TYPE",
            "ENUM_HCCL_RDMA_TYPE",
            "ENUM_MSTX_EVENT_TYPE",
            "ENUM_MEMCPY_OPERATION",
        ),
        "id name",
    ),
}
# Of torch_npu's analysis.db.
ANALYSIS = {
    "CommAnalyzerBandwidth": (
        "hccl_op_name group_name transport_type transit_size transit_time bandwidth large_packet_ratio "
        "package_size count total_duration step type"
    ),
    "CommAnalyzerTime": (
        "hccl_op_name group_name start_timestamp elapse_time transit_time wait_time "
        "synchronization_time idle_time step type"
    ),
    "StepTraceTime": (
        "deviceId step computing communication_not_overlapped overlapped communication free stage "
        "bubble communication_not_overlapped_and_exclude_receive preparing"
    ),
}


def profiled(where, types, **options):
    """A profile of two steps, in a folder."""
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU()).to("npu")
    with npu_profiler.profile(
        schedule=npu_profiler.schedule(wait=0, warmup=1, active=2, repeat=1),
        on_trace_ready=npu_profiler.tensorboard_trace_handler(str(where)),
        record_shapes=True,
        profile_memory=True,
        experimental_config=npu_profiler._ExperimentalConfig(export_type=types),
        **options,
    ) as prof:
        prof.add_metadata("model", "mlp")
        for _ in range(3):
            with torch.npu.mstx.mstx_range("a step of mine"):
                net(torch.randn(8, 16).to("npu")).sum().item()
            prof.step()
    (folder,) = where.iterdir()
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    types = [npu_profiler.ExportType.Text, npu_profiler.ExportType.Db]
    return profiled(tmp_path_factory.mktemp("profile"), types, with_stack=True)


def opened(folder, name="ascend_pytorch_profiler.db"):
    path = folder / OUTPUT / name
    assert path.is_file(), list(path.parent.iterdir())
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def columns(database):
    tables = [
        row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
    ]
    return {
        table: " ".join(row[1] for row in database.execute(f"PRAGMA table_info({table})"))
        for table in tables
    }


def test_tables_and_columns_are_ascends(written):
    assert columns(opened(written)) == COLUMNS
    assert columns(opened(written, "analysis.db")) == ANALYSIS
    for name in ("ascend_pytorch_profiler.db", "analysis.db"):
        assert opened(written, name).execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_tasks_are_the_work_of_the_trace(written):
    trace = Trace(written / "FRAMEWORK" / "torch_trace.json")
    base = json.loads((written / "FRAMEWORK" / "torch_trace.json").read_text())[
        "baseTimeNanoseconds"
    ]
    rows = opened(written).execute(
        "SELECT startNs, endNs, deviceId, streamId, connectionId FROM TASK ORDER BY globalTaskId"
    )
    expected = sorted(
        (
            base + round(e["ts"] * 1000),
            base + round((e["ts"] + e["dur"]) * 1000),
            e["args"]["device"],
            e["args"]["stream"],
            e["args"]["correlation"],
        )
        for e in trace.work
    )
    assert expected and sorted(rows.fetchall()) == expected
    begin, end = opened(written).execute("SELECT * FROM SESSION_TIME_INFO").fetchone()
    assert all(begin <= row[0] <= row[1] <= end for row in expected)


def test_an_operator_leads_to_its_kernel(written):
    """The joins that Ascend's tools make."""
    rows = (
        opened(written)
        .execute(
            """SELECT op.value, kernel.value, kind.value, shapes.value, launch.value, way.name
           FROM PYTORCH_API api JOIN STRING_IDS op ON op.id = api.name
           JOIN CONNECTION_IDS connection ON connection.id = api.connectionId
           JOIN CANN_API host ON host.connectionId = connection.connectionId
           JOIN STRING_IDS launch ON launch.id = host.name
           JOIN ENUM_API_TYPE way ON way.id = host.type
           JOIN TASK task ON task.connectionId = connection.connectionId
           JOIN COMPUTE_TASK_INFO info ON info.globalTaskId = task.globalTaskId
           JOIN STRING_IDS kernel ON kernel.id = info.name
           JOIN STRING_IDS kind ON kind.id = info.opType
           JOIN STRING_IDS shapes ON shapes.id = info.inputShapes"""
        )
        .fetchall()
    )
    found = {row[0]: row[1:] for row in rows}
    assert found["aten::addmm"][1:] == ("Addmm", "32;8,16;16,32;;", "npuLaunchKernel", "node")
    assert found["aten::gelu"][1] == "Gelu"


def test_copies_steps_ranges_and_memory(written):
    database = opened(written)
    copies = database.execute(
        "SELECT way.name, info.size FROM MEMCPY_INFO info "
        "JOIN ENUM_MEMCPY_OPERATION way ON way.id = info.memcpyOperation"
    ).fetchall()
    assert ("host to device", 8 * 16 * 4) in copies and ("device to host", 4) in copies
    steps = database.execute("SELECT id, endNs > startNs FROM STEP_TIME ORDER BY id").fetchall()
    assert steps == [(1, 1), (2, 1)]
    messages = database.execute(
        "SELECT text.value, event.endNs >= event.startNs, kind.name FROM MSTX_EVENTS event "
        "JOIN STRING_IDS text ON text.id = event.message "
        "JOIN ENUM_MSTX_EVENT_TYPE kind ON kind.id = event.eventType"
    ).fetchall()
    assert set(messages) == {("a step of mine", 1, "start/end")}
    allocations = database.execute(
        "SELECT text.value, size, duration FROM OP_MEMORY JOIN STRING_IDS text ON text.id = name"
    ).fetchall()
    assert any(name.startswith("aten::") for name, _, _ in allocations)
    assert all(size > 0 and (time is None or time >= 0) for _, size, time in allocations)
    metadata = dict(database.execute("SELECT name, value FROM META_DATA"))
    assert metadata["model"] == '"mlp"' and metadata["torch_version"] == torch.__version__
    assert opened(written, "analysis.db").execute(
        "SELECT step, computing > 0 FROM StepTraceTime ORDER BY step"
    ).fetchall() == [("1", 1), ("2", 1)]


def test_call_stacks(written):
    rows = (
        opened(written)
        .execute(
            """SELECT stack.value FROM PYTORCH_API api JOIN STRING_IDS op ON op.id = api.name
           JOIN PYTORCH_CALLCHAINS chain ON chain.id = api.callchainId
           JOIN STRING_IDS stack ON stack.id = chain.stack
           WHERE op.value = 'aten::addmm' ORDER BY api.startNs, chain.stackDepth"""
        )
        .fetchall()
    )
    names = [row[0] for row in rows]
    assert any("linear.py" in name for name in names)
    assert "linear.py" in (written / OUTPUT / "operator_details.csv").read_text()


def test_a_database_alone(tmp_path):
    folder = profiled(tmp_path, npu_profiler.ExportType.Db)
    names = {path.name for path in (folder / OUTPUT).iterdir()}
    assert names == {"ascend_pytorch_profiler.db", "analysis.db", "advice.txt"}


def test_text_is_the_default(tmp_path):
    folder = profiled(tmp_path, None)
    assert not list((folder / OUTPUT).glob("*.db"))
    analyse(str(folder), export_type="db")
    assert opened(folder).execute("SELECT count(*) FROM TASK").fetchone()[0] > 0
    with pytest.raises(TypeError, match=r"'xml' is not ExportType.Text or ExportType.Db"):
        analyse(str(folder), export_type=["db", "xml"])
    assert npu_profiler.supported_export_type() == set(npu_profiler.ExportType)


def test_the_rank_is_in_the_name(tmp_path):
    folder = profiled(tmp_path, npu_profiler.ExportType.Text)
    info = json.loads((folder / "profiler_info.json").read_text())
    (folder / "profiler_info.json").unlink()
    (folder / "profiler_info_3.json").write_text(json.dumps({**info, "rank_id": 3}))
    analyse(str(folder), export_type=npu_profiler.ExportType.Db)
    database = opened(folder, "ascend_pytorch_profiler_3.db")
    assert database.execute("SELECT * FROM RANK_DEVICE_MAP").fetchall() == [(3, 0)]


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


def test_collectives(tmp_path):
    """A trace made by hand: an all-reduce of 1 MB that waits 2 of its 5 ms, and a send."""
    work = {"device": 0, "stream": 1000}
    events = [
        event("hcclEnqueue", "privateuse1_runtime", 10.0, 1.0, 7, 7, correlation=1),
        event("hccl::all_reduce", "kernel", 20.0, 5000.0, 0, 1000, correlation=1, bytes=1000000,
              **{"waited (ns)": 2000000}, **work),
        event("hcclEnqueue", "privateuse1_runtime", 12.0, 1.0, 7, 7, correlation=2),
        event("hccl::send", "kernel", 6000.0, 1000.0, 0, 1000, correlation=2, bytes=4, **work),
    ]  # fmt: skip
    folder = tmp_path / "x_1_1_ascend_pt"
    (folder / "FRAMEWORK").mkdir(parents=True)
    trace = {"traceEvents": events, "baseTimeNanoseconds": 1000}
    (folder / "FRAMEWORK" / "torch_trace.json").write_text(json.dumps(trace))
    analyse(str(tmp_path), export_type="db")
    database = opened(folder)
    assert database.execute(
        "SELECT name.value, startNs, endNs, count, kind.value FROM COMMUNICATION_OP "
        "JOIN STRING_IDS name ON name.id = opName JOIN STRING_IDS kind ON kind.id = opType "
        "ORDER BY opId"
    ).fetchall() == [
        ("hcom_allReduce__0", 21000, 5021000, 1000000, "hcom_allReduce_"),
        ("hcom_send__1", 6001000, 7001000, 4, "hcom_send_"),
    ]
    assert database.execute(
        "SELECT t.startNs, c.size, c.bandwidth FROM COMMUNICATION_TASK_INFO c "
        "JOIN TASK t ON t.globalTaskId = c.globalTaskId WHERE c.opId = 0"
    ).fetchall() == [(21000, 1000000, 200000000)]
    assert database.execute("SELECT count(*) FROM COMPUTE_TASK_INFO").fetchone() == (0,)
    rows = opened(folder, "analysis.db").execute(
        "SELECT hccl_op_name, elapse_time, transit_time, wait_time, type FROM CommAnalyzerTime "
        "WHERE hccl_op_name != 'Total Op Info' ORDER BY start_timestamp"
    )
    assert rows.fetchall() == [
        ("hcom_allReduce__0", 5.0, 3.0, 2.0, "collective"),
        ("hcom_send__0", 1.0, 1.0, 0.0, "p2p"),
    ]


def test_a_failure_leaves_the_file_before_it(tmp_path, monkeypatch):
    from torch_npu.profiler import database

    folder = profiled(tmp_path, npu_profiler.ExportType.Db)
    before = (folder / OUTPUT / "ascend_pytorch_profiler.db").read_bytes()
    names = sorted(path.name for path in (folder / OUTPUT).iterdir())
    monkeypatch.setattr(database._Filler, "memory", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        analyse(str(folder))
    assert (folder / OUTPUT / "ascend_pytorch_profiler.db").read_bytes() == before
    assert sorted(path.name for path in (folder / OUTPUT).iterdir()) == names


def test_a_program_that_is_ended_leaves_no_half_file(tmp_path, run_code):
    folder = profiled(tmp_path, npu_profiler.ExportType.Text)
    before = (folder / OUTPUT / "trace_view.json").read_bytes()
    run_code(
        f"""
        import os
        from torch_npu.profiler import database, tables
        from torch_npu.profiler.profiler import analyse
        database._Filler.memory = lambda self: os._exit(9)
        analyse({str(folder)!r}, export_type=["text", "db"])
        """,
        check=False,
    )
    assert not list((folder / OUTPUT).glob("*.db"))
    assert (folder / OUTPUT / "trace_view.json").read_bytes() == before
    analyse(str(folder), export_type="db")
    assert opened(folder).execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert not list((folder / OUTPUT).glob(".*"))
