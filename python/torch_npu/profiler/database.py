# SPDX-License-Identifier: Apache-2.0
"""A profile as SQLite databases, with the tables and columns of Ascend's profiler."""

from __future__ import annotations

import contextlib
import json
import platform
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import communication, folder, tables
from . import database_schema as schema
from .trace import COLLECTIVE, Op, Trace, Work

_INVALID = 4294967295  # Ascend's number for none
_FIRST_STRING = 1 << 28

_COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 3, "PtoP": 3}
_HCCL_TYPES = {
    "signed char": 0, "Char": 0, "int8": 0, "short": 1, "int": 2, "c10::Half": 3, "float": 4,
    "long int": 5, "unsigned char": 7, "double": 10, "c10::BFloat16": 11,
}  # fmt: skip


def write(profile: Path, trace: Trace) -> None:
    """ascend_pytorch_profiler[_<rank>].db and analysis.db of one profile."""
    out = profile / folder.OUTPUT
    info = folder.info_of(profile)
    rank = info.get("rank_id", -1)
    name = "ascend_pytorch_profiler" + (f"_{rank}" if rank >= 0 else "") + ".db"
    with _made(out / name, {**_ENUM_COLUMNS, **schema.PROFILE}) as database:
        _Filler(database, trace, profile, info).fill()
    with _made(out / "analysis.db", schema.ANALYSIS) as database:
        _fill_analysis(database, trace)


_ENUM_COLUMNS = {name: "id PRIMARY KEY, name TEXT" for name in schema.ENUMS}


def _typed(column: str) -> str:
    name, _, kind = column.strip().partition(" ")
    return (
        f"{name} {kind if kind and not kind.startswith('PRIMARY') else 'INTEGER ' + kind}".strip()
    )


@contextlib.contextmanager
def _made(path: Path, made: dict[str, str]) -> Iterator[sqlite3.Connection]:
    """A new database under another name, which becomes `path` when it is whole."""
    with (
        folder.whole(path) as unfinished,
        contextlib.closing(sqlite3.connect(unfinished)) as database,
    ):
        try:
            database.execute("PRAGMA journal_mode = OFF")  # it becomes the file when it is whole
            with database:
                for table, columns in made.items():
                    typed = ", ".join(_typed(column) for column in columns.split(","))
                    database.execute(f"CREATE TABLE {table} ({typed})")
                yield database
        except sqlite3.Error as error:
            raise folder.FolderError(
                f"torch_npu.profiler: cannot write {str(path)!r}: {error}."
            ) from None


def _insert(database: sqlite3.Connection, table: str, rows: Iterable) -> None:
    rows = list(rows)
    if rows:
        marks = ", ".join("?" * len(rows[0]))
        database.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)


class _Filler:
    def __init__(
        self, database: sqlite3.Connection, trace: Trace, profile: Path, info: dict
    ) -> None:
        self.database, self.trace, self.profile, self.info = database, trace, profile, info
        self.strings: dict[str, int] = {}
        self.ns = trace.ns
        self.tasks = {id(work): number for number, work in enumerate(trace.work)}

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, _FIRST_STRING + len(self.strings))

    def put(self, table: str, rows: Iterable) -> None:
        _insert(self.database, table, rows)

    def fill(self) -> None:
        for name, values in schema.ENUMS.items():
            self.put(name, values.items())
        self.about()
        self.apis()
        self.host_calls()
        self.tasks_of_devices()
        self.collectives()
        self.memory()
        self.put(
            "STEP_TIME", ((s.number, self.ns(s.start), self.ns(s.end)) for s in self.trace.steps)
        )
        self.put("STRING_IDS", ((number, text) for text, number in self.strings.items()))

    # ---- the profiled work ----

    def about(self) -> None:
        begin = self.info.get("start_info", {}).get("collectionTimeBegin")
        end = self.info.get("end_info", {}).get("collectionTimeEnd")
        if begin and end:
            self.put("SESSION_TIME_INFO", [(int(begin) * 1000, int(end) * 1000)])
        names = self.trace.device_names
        self.put("NPU_INFO", ((d, names.get(d, "")) for d in self.trace.devices))
        self.put("HOST_INFO", [(str(uuid.getnode()), platform.node())])
        rank = self.info.get("rank_id", -1)
        if rank >= 0:
            devices = self.trace.devices
            self.put("RANK_DEVICE_MAP", [(rank, devices[0] if len(devices) == 1 else -1)])
        written = {
            "SCHEMA_VERSION": "1.1.0",
            "SCHEMA_VERSION_MAJOR": "1",
            "SCHEMA_VERSION_MINOR": "1",
            "SCHEMA_VERSION_MICRO": "0",
            **{
                key: str(self.info[key])
                for key in ("torch_version", "torch_npu_version")
                if key in self.info
            },
        }
        path = self.profile / "profiler_metadata.json"
        if path.exists():
            given = json.loads(path.read_text(encoding="utf-8"))
            written |= {str(key): json.dumps(value) for key, value in given.items()}
        self.put("META_DATA", written.items())

    # ---- the host ----

    def apis(self) -> None:
        """Operators and ranges, with the numbers of what they launched, and Python functions."""
        connections: list[tuple[int, int]] = []
        chains: dict[tuple[str, ...], int] = {}
        rows = []
        for number, op in enumerate(self.trace.ops, 1):
            mine = [w.args["correlation"] for w in op.work if "correlation" in w.args]
            connections += [(number, correlation) for correlation in mine]
            chain = chains.setdefault(op.stack, len(chains) + 1) if op.stack else None
            rows.append(self.api_of(op, number if mine else None, chain))
        process = self.trace.process
        ranges = self.info.get("mstx_ranges", {})
        domains: dict[str, int] = {}
        marks = []
        for event in self.trace.annotations:
            how, domain = ranges.get(event["name"], (None, None))
            rows.append(
                self.span_of(event, process, schema.API_OP if how is None else schema.API_MSTX)
            )
            if how is not None:
                start, end, thread = rows[-1][:3]
                number = domains.setdefault(domain, len(domains))
                marks.append(
                    (start, end, how, len(marks) + 1, _INVALID, self.string(event["name"]), thread,
                     thread, number, _INVALID)
                )  # fmt: skip
        for event in self.trace.functions:
            rows.append(self.span_of(event, process, schema.API_TRACE))
        self.put("PYTORCH_API", rows)
        self.put("MSTX_EVENTS", marks)
        self.put("CONNECTION_IDS", connections)
        self.put(
            "PYTORCH_CALLCHAINS",
            (
                (number, self.string(function), depth)
                for chain, number in chains.items()
                for depth, function in enumerate(chain)
            ),
        )

    def api_of(self, op: Op, connection: int | None, chain: int | None) -> tuple:
        types, shapes = tables.shapes_of(op, "Input type"), tables.shapes_of(op)
        return (
            self.ns(op.start),
            self.ns(op.end),
            self.trace.process << 32 | int(op.thread),
            connection,
            self.string(op.name),
            op.args.get("Sequence number"),
            op.args.get("Fwd thread id"),
            self.string(types) if types else None,
            self.string(shapes) if shapes else None,
            chain,
            schema.API_OP,
        )

    def span_of(self, event: dict, process: int, kind: int) -> tuple:
        start = float(event["ts"])
        thread = process << 32 | int(event["tid"])
        times = (self.ns(start), self.ns(start + float(event["dur"])))
        name = self.string(event["name"])
        return (*times, thread, None, name, None, None, None, None, None, kind)

    def host_calls(self) -> None:
        kinds = {"npuLaunchKernel": schema.API_NODE, "hcclEnqueue": schema.API_COMMUNICATION}
        self.put(
            "CANN_API",
            (
                (
                    self.ns(call.start),
                    self.ns(call.end),
                    kinds.get(call.name, schema.API_RUNTIME),
                    call.process << 32 | call.thread,
                    call.correlation,
                    self.string(call.name),
                )
                for call in self.trace.host_calls
            ),
        )

    # ---- devices ----

    def tasks_of_devices(self) -> None:
        task, compute, copies = [], [], []
        in_stream: dict[tuple[int, int], int] = {}
        for work in self.trace.work:
            lane = (work.device, work.stream)
            in_stream[lane] = in_stream.get(lane, -1) + 1
            task.append(
                (
                    self.ns(work.start),
                    self.ns(work.end),
                    work.device,
                    work.args.get("correlation", _INVALID),
                    self.tasks[id(work)],
                    self.trace.process,
                    self.string(_task_type(work)),
                    _INVALID,
                    work.stream,
                    in_stream[lane],
                    _INVALID,
                )
            )
            if work.sort == "kernel" and not work.is_collective:
                compute.append(self.compute_of(work))
            elif work.sort == "gpu_memcpy":
                kind = _COPIES.get(work.name.rpartition(" ")[2], 65535)
                copies.append((self.tasks[id(work)], work.args.get("bytes", 0), kind))
        self.put("TASK", task)
        self.put("COMPUTE_TASK_INFO", compute)
        self.put("MEMCPY_INFO", copies)

    def compute_of(self, work: Work) -> tuple:
        op = self.trace.launching_op.get(id(work))
        shapes, types = tables.shapes_of(op), tables.shapes_of(op, "Input type")
        absent = self.string("N/A")
        return (
            self.string(work.name),
            self.tasks[id(work)],
            0,
            0,
            self.string("AI_CORE"),
            self.string(work.type),
            self.string(tables.formats_of(shapes)),
            self.string(types or "N/A"),
            self.string(shapes or "N/A"),
            absent,
            absent,
            absent,
            absent,
            absent,
            absent,
        )

    def collectives(self) -> None:
        ops, parts = [], []
        for number, work in enumerate(w for w in self.trace.work if w.is_collective):
            kind = communication.ascend_name(work)
            name = self.string(f"{kind}__{number}")
            op = self.trace.launching_op.get(id(work))
            dtype = _HCCL_TYPES.get(tables.shapes_of(op, "Input type").partition(";")[0], 65534)
            connection = work.args.get("correlation", _INVALID)
            group = self.string("hccl_world_group")
            size = int(work.args.get("bytes", 0))
            seconds = work.duration / 1e6
            ops.append(
                (
                    name, self.ns(work.start), self.ns(work.end), connection, group, number, 0, 0,
                    dtype, self.string("N/A"), size, self.string(f"{kind}_"), work.device,
                )
            )  # fmt: skip
            parts.append(
                (
                    self.string(work.name.removeprefix(COLLECTIVE)), self.tasks[id(work)],
                    self.string("HCCL"), 0, group, _INVALID, 65534, _INVALID, _INVALID, 0, size,
                    dtype, 65534, number, 1, size / seconds if seconds > 0 else 0,
                )
            )  # fmt: skip
        self.put("COMMUNICATION_OP", ops)
        self.put("COMMUNICATION_TASK_INFO", parts)

    # ---- memory ----

    def memory(self) -> None:
        events = [e for e in self.trace.memory if int(e["args"].get("Device Id", -1)) >= 0]
        events.sort(key=lambda e: float(e["ts"]))
        component = self.string("PTA") if events else 0
        records, held, rows = [], {}, []
        for event in events:
            args, at = event["args"], self.ns(float(event["ts"]))
            device, key = args["Device Id"], (args["Device Id"], args.get("Addr"))
            total, reserved = args.get("Total Allocated", 0), args.get("Total Reserved", 0)
            records.append((component, at, total, reserved, total, None, device))
            size = int(args.get("Bytes", 0))
            if size > 0:
                held[key] = (size, at, total, reserved, self.allocating_op(event))
            elif key in held:
                rows.append(self.memory_row(held.pop(key), device, (at, total, reserved)))
        rows += [self.memory_row(block, key[0], None) for key, block in held.items()]
        self.put("MEMORY_RECORD", records)
        self.put("OP_MEMORY", sorted(rows, key=lambda row: row[2]))

    def allocating_op(self, event: dict) -> str:
        op = self.trace.op_at(event["tid"], float(event["ts"]))
        return op.name if op is not None else ""

    def memory_row(self, block: tuple, device: int, end: tuple | None) -> tuple:
        size, begin, total, reserved, name = block
        at, left, left_reserved = end or (None, None, None)
        duration = at - begin if at is not None else None
        return (
            self.string(name), size, begin, at, at, duration, duration,
            total, reserved, total, left, left_reserved, left, None, device,
        )  # fmt: skip


def _task_type(work: Work) -> str:
    if work.is_collective:
        return "HCCL"
    return {"kernel": "KERNEL_AICORE", "gpu_memcpy": "MEMCPY_ASYNC"}.get(work.sort, "MEMSET_ASYNC")


def _fill_analysis(database: sqlite3.Connection, trace: Trace) -> None:
    times, bandwidths = [], []
    group = "hccl_world_group"
    for step, sorts in communication.content(trace).items():
        for sort, calls in sorts.items():
            for name, call in calls.items():
                whole = name == communication.TOTAL
                kind = "" if whole else sort
                time = call["Communication Time Info"]
                times.append(
                    (
                        name,
                        group,
                        time["Start Timestamp(us)"],
                        *(
                            time[f"{part} Time(ms)"]
                            for part in ("Elapse", "Transit", "Wait", "Synchronization", "Idle")
                        ),
                        step,
                        kind,
                    )
                )
                for way, moved in call["Communication Bandwidth Info"].items():
                    for size, (count, took) in moved["Size Distribution"].items():
                        bandwidths.append(
                            (
                                name,
                                group,
                                way,
                                moved["Transit Size(MB)"],
                                moved["Transit Time(ms)"],
                                moved["Bandwidth(GB/s)"],
                                moved["Large Packet Ratio"],
                                float(size),
                                count,
                                took,
                                step,
                                kind,
                            )
                        )
    _insert(database, "CommAnalyzerTime", times)
    _insert(database, "CommAnalyzerBandwidth", bandwidths)
    _insert(database, "StepTraceTime", tables.step_rows(trace))
