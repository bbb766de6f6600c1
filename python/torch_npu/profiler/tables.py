# SPDX-License-Identifier: Apache-2.0
"""Ascend's tables of a profile, made from its trace."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from . import communication, folder
from .trace import Op, Trace, Work

_MIB = 1024 * 1024


def write(profile: Path, trace: Trace) -> None:
    """Text files of ASCEND_PROFILER_OUTPUT of one profile."""
    out = profile / folder.OUTPUT
    folder.write_json(out / "trace_view.json", trace.events, indent=None)
    _csv(out / "operator_details.csv", OPERATORS, operator_rows(trace))
    _csv(out / "kernel_details.csv", kernel_columns(trace), kernel_rows(trace))
    _csv(out / "op_statistic.csv", STATISTIC, statistic_rows(trace))
    _csv(out / "step_trace_time.csv", STEPS, step_rows(trace))
    if talk := communication.content(trace):
        folder.write_json(out / "communication.json", talk)
    if trace.memory:
        _csv(out / "memory_record.csv", MEMORY, memory_rows(trace))


def _csv(path: Path, columns: list[str], rows: list[list]) -> None:
    with (
        folder.whole(path) as unfinished,
        open(unfinished, "w", newline="", encoding="utf-8") as file,
    ):
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def _us(value: float) -> str:
    return f"{value:.3f}"


# ---- operators ----

OPERATORS = [
    "Name",
    "Input Shapes",
    "Call Stack",
    "Host Self Duration(us)",
    "Host Total Duration(us)",
    "Device Self Duration(us)",
    "Device Total Duration(us)",
    "Device Self Duration With AICore(us)",
    "Device Total Duration With AICore(us)",
]


def shapes_of(op: Op | None, key: str = "Input Dims") -> str:
    values = op.args.get(key) if op is not None else None
    if not values:
        return ""
    return ";".join(
        ",".join(str(n) for n in value) if isinstance(value, list) else str(value)
        for value in values
    )


def formats_of(shapes: str) -> str:
    return ";".join("ND" for _ in shapes.split(";")) if shapes else "N/A"


def operator_rows(trace: Trace) -> list[list]:
    ops = trace.ops
    own = [sum(work.duration for work in op.work) for op in ops]
    own_core = [sum(work.duration for work in op.work if work.sort == "kernel") for op in ops]
    place = {id(op): i for i, op in enumerate(ops)}
    total, total_core = list(own), list(own_core)
    # Children come after their parents: from the last one up every sum is whole.
    for i in range(len(ops) - 1, -1, -1):
        parent = ops[i].parent
        if parent is not None:
            total[place[id(parent)]] += total[i]
            total_core[place[id(parent)]] += total_core[i]
    return [
        [
            op.name,
            shapes_of(op),
            ";\r\n".join(op.stack),
            _us(max(0.0, op.duration - op.children)),
            _us(op.duration),
            _us(own[i]),
            _us(total[i]),
            _us(own_core[i]),
            _us(total_core[i]),
        ]
        for i, op in enumerate(ops)
    ]


# ---- kernels ----

_KERNELS = [
    "Device_id",
    "Name",
    "Type",
    "Accelerator Core",
    "Start Time(us)",
    "Duration(us)",
    "Wait Time(us)",
    "Block Num",
    "Input Shapes",
    "Input Data Types",
    "Input Formats",
]


def kernel_columns(trace: Trace) -> list[str]:
    return ["Step Id", *_KERNELS] if trace.steps else list(_KERNELS)


def _core(work: Work) -> str:
    return "HCCL" if work.is_collective else "AI_CORE"


def kernel_rows(trace: Trace) -> list[list]:
    """Wait Time: how long the stream had stood still before the kernel."""
    rows, free_since = [], {}
    for work in trace.work:
        lane = (work.device, work.stream)
        waited = max(0.0, work.start - free_since.get(lane, work.start))
        free_since[lane] = max(work.end, free_since.get(lane, work.end))
        if work.sort != "kernel":
            continue
        op = trace.launching_op.get(id(work))
        shapes = shapes_of(op)
        row = [
            work.device,
            work.name,
            work.type,
            _core(work),
            _us(work.start),
            _us(work.duration),
            _us(waited),
            0,
            shapes or "N/A",
            shapes_of(op, "Input type") or "N/A",
            formats_of(shapes),
        ]
        if trace.steps:
            step = trace.step_of(work)
            row.insert(0, step.number if step is not None else "")
        rows.append(row)
    return rows


# ---- statistic ----

STATISTIC = [
    "OP Type",
    "Core Type",
    "Count",
    "Total Time(us)",
    "Min Time(us)",
    "Avg Time(us)",
    "Max Time(us)",
    "Ratio(%)",
]


def statistic_rows(trace: Trace) -> list[list]:
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for work in trace.work:
        if work.sort == "kernel":
            groups[work.type, _core(work)].append(work.duration)
    everything = sum(sum(times) for times in groups.values())
    rows = sorted(groups.items(), key=lambda item: -sum(item[1]))
    return [
        [
            sort,
            core,
            len(times),
            _us(sum(times)),
            _us(min(times)),
            _us(sum(times) / len(times)),
            _us(max(times)),
            f"{100 * sum(times) / everything:.3f}" if everything else "0.000",
        ]
        for (sort, core), times in rows
    ]


# ---- steps ----

STEPS = [
    "Device_id",
    "Step",
    "Computing",
    "Communication(Not Overlapped)",
    "Overlapped",
    "Communication",
    "Free",
    "Stage",
    "Bubble",
    "Communication(Not Overlapped and Exclude Receive)",
    "Preparing",
]


def merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same time as spans that do not overlap."""
    out: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def length(spans: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)


def common(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> float:
    """How long both are under way; each without overlaps, in order."""
    total, i, j = 0.0, 0, 0
    while i < len(a) and j < len(b):
        total += max(0.0, min(a[i][1], b[j][1]) - max(a[i][0], b[j][0]))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return total


def _step_row(device: int, step, work: list[Work]) -> list:
    spans = {"compute": [], "all": [], "send": []}
    for item in work:
        span = (item.start, item.end)
        if not item.is_collective:
            spans["compute"].append(span)
            continue
        spans["all"].append(span)
        if not item.is_receive:
            spans["send"].append(span)
    compute, talk, send = (merged(spans[key]) for key in ("compute", "all", "send"))
    overlapped = common(compute, talk)
    start = step.start if step is not None else min(item.start for item in work)
    end = max([item.end for item in work] + ([step.end] if step is not None else []))
    busy = length(merged(spans["compute"] + spans["all"]))
    bubble = length(talk) - length(send) if spans["send"] != spans["all"] else 0.0
    return [
        device,
        step.number if step is not None else "",
        _us(length(compute)),
        _us(length(talk) - overlapped),
        _us(overlapped),
        _us(length(talk)),
        _us(max(0.0, end - start - busy)),
        _us(max(0.0, end - start - bubble)),
        _us(bubble),
        _us(length(send) - common(compute, send)),
        _us(max(0.0, min(item.start for item in work) - start)),
    ]


def step_rows(trace: Trace) -> list[list]:
    groups: dict[tuple[int, int], list[Work]] = defaultdict(list)
    steps = {}
    for work in trace.work:
        step = trace.step_of(work) if trace.steps else None
        if trace.steps and step is None:
            continue
        number = step.number if step is not None else -1
        steps[number] = step
        groups[work.device, number].append(work)
    return [
        _step_row(device, steps[number], work) for (device, number), work in sorted(groups.items())
    ]


# ---- memory ----

MEMORY = [
    "Component",
    "Timestamp(us)",
    "Total Allocated(MB)",
    "Total Reserved(MB)",
    "Total Active(MB)",
    "Stream Ptr",
    "Device Type",
]


def memory_rows(trace: Trace) -> list[list]:
    rows = []
    for event in sorted(trace.memory, key=lambda e: float(e["ts"])):
        args = event["args"]
        if int(args.get("Device Id", -1)) < 0:
            continue  # of the host
        allocated = args.get("Total Allocated", 0) / _MIB
        rows.append(
            [
                "PTA",
                _us(float(event["ts"])),
                f"{allocated:.3f}",
                f"{args.get('Total Reserved', 0) / _MIB:.3f}",
                f"{allocated:.3f}",
                "",
                f"NPU:{args['Device Id']}",
            ]
        )
    return rows
