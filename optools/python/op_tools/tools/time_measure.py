# SPDX-License-Identifier: Apache-2.0
"""OpTimeMeasure: how long each operator took, forward, backward and optimizer."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from op_tools.core import _C, location, options, results, threads
from op_tools.core.files import result_path, write_csv, write_whole
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import many

FOLDER = os.path.join("op_tools_results", "op_time_measure_result")
COLUMNS = (
    "name,forward_id,forward_elasped,backward_elasped,unit,input,output,grad_inputs,grad_outputs"
).split(",")


_DEVICE_LANE = 0  # threads count from 1


class Sample(NamedTuple):
    number: int
    op: str
    phase: str
    start_ns: int
    launch_ns: int
    device_ns: int  # -1 where the device has no clock
    took_ns: int
    thread: int
    step: int
    sequence: int
    forward: int  # number of the forward call
    api: str
    api_call: int
    module: str
    raised: bool
    site: str  # "file:line function", or "-"

    @property
    def place(self) -> str:
        """Module and line, as far as they are known; of a backward call, those of its forward call."""
        return " ".join(part for part in (self.module, self.site) if part and part != "-")


def _percentile(times: list[int], share: int) -> int:
    """Of sorted times; of fewer than 100, the 99th is the longest."""
    return times[-(-len(times) * share // 100) - 1]


class OpTimeMeasure(OpTool):
    family = "TIME_MEASURE"
    feature = "measure_op_time"
    variables = ("LIMIT",)

    def __init__(self) -> None:
        super().__init__()
        self.call_sites = True
        self.module_paths = True

    def make_core(self) -> _C.Timing:
        return _C.Timing(options.number("OP_TIME_MEASURE_LIMIT", 1_000_000))

    def start(self) -> OpTimeMeasure:
        self._described: dict[int, dict] = {}
        self.threads: dict[int, str] = {}  # names, by number
        return super().start()

    def stop(self) -> None:
        if self.is_running:
            self.threads = threads.names()  # before threads that end with the block are gone
        super().stop()

    end = stop

    def describe(self, call: int, **columns: object) -> None:
        """Texts of an API call's columns in the CSV file."""
        self._described.setdefault(call, {}).update(columns)

    def samples(self) -> list[Sample]:
        """One per call, in the order calls began; after stop()."""
        return [Sample._make((*f[:-1], location(f[-1]))) for f in self._last.samples()]

    def table(self) -> list[dict]:
        """Per operator and phase: count, total, mean, p50, p99 (ms) and share; slowest first.
        A percentile is the smallest time that so many of the calls did not exceed. `place` is the
        module and line that took most of the time, `places` how many there are."""
        groups: dict[tuple[str, str], list[int]] = {}
        spent: dict[tuple[str, str], Counter[str]] = {}
        for sample in self.samples():
            key = sample.op, sample.phase
            groups.setdefault(key, []).append(sample.took_ns)
            spent.setdefault(key, Counter())[sample.place] += sample.took_ns
        whole = sum(sum(times) for times in groups.values()) or 1
        rows = []
        for (op, phase), times in groups.items():
            times.sort()
            total = sum(times)
            rows.append(
                {
                    "name": op,
                    "phase": phase,
                    "count": len(times),
                    "total": total / 1e6,
                    "mean": total / len(times) / 1e6,
                    "p50": _percentile(times, 50) / 1e6,
                    "p99": _percentile(times, 99) / 1e6,
                    "share": total / whole,
                    "place": spent[op, phase].most_common(1)[0][0],
                    "places": len(spent[op, phase]),
                }
            )
        return sorted(rows, key=lambda row: -row["total"])

    def save_trace(self, path: str) -> None:
        """A Chrome trace (chrome://tracing, Perfetto): launches on a lane per thread and, where the
        device has a clock, what ran there on a lane of its own."""
        write_whole(path, json.dumps({"traceEvents": list(self._trace())}))

    def _trace(self) -> Iterator[dict]:
        process, samples = os.getpid(), self.samples()
        lanes = {number: self.threads.get(number, f"thread {number}") for number in
                 sorted({s.thread for s in samples})}  # fmt: skip
        if any(s.device_ns > 0 for s in samples):
            lanes[_DEVICE_LANE] = "device"
        for lane, name in lanes.items():
            where = {"ph": "M", "pid": process, "tid": lane}
            yield {"name": "thread_name", **where, "args": {"name": name}}
            yield {"name": "thread_sort_index", **where, "args": {"sort_index": lane or 1 << 30}}
        free = 0
        for s in samples:
            told = {"number": s.number, "sequence": s.sequence, "step": s.step, "api": s.api}
            event = {"name": s.op, "cat": s.phase, "ph": "X", "pid": process}
            event["args"] = {**told, "module": s.module, "launch_us": s.launch_ns / 1e3}
            yield {**event, "ts": s.start_ns / 1e3, "dur": s.launch_ns / 1e3, "tid": s.thread}
            if s.device_ns > 0:
                # Kernels run in the order of their launches, one after the other.
                begin = max(s.start_ns, free)
                free = begin + s.device_ns
                yield {**event, "ts": begin / 1e3, "dur": s.device_ns / 1e3, "tid": _DEVICE_LANE}
                flow = {"name": "launch", "cat": "launch", "id": s.number, "pid": process}
                yield {**flow, "ph": "s", "ts": s.start_ns / 1e3, "tid": s.thread}
                yield {**flow, "ph": "f", "bp": "e", "ts": begin / 1e3, "tid": _DEVICE_LANE}

    def rows(self) -> list[dict]:
        """ditorch's rows: one per API call where names are known, else one per kernel."""
        rows: dict[tuple, dict] = {}
        for s in self.samples():
            name, key = (s.api, ("api", s.api_call)) if s.api_call else (s.op, ("op", s.number))
            row = rows.setdefault(
                key, {"name": name, "forward_id": key[1], "forward": 0, "backward": 0}
            )
            row["backward" if s.phase == "backward" else "forward"] += s.took_ns
        return list(rows.values())

    def save_csv(self, path: str | None = None) -> str:
        """ditorch's file; returns its path."""
        path = path or result_path(FOLDER, "op_elasped_info")
        write_csv(path, COLUMNS, map(self._ditorch_row, self.rows()))
        return path

    def _ditorch_row(self, row: dict) -> dict:
        return {
            "name": row["name"],
            "forward_id": row["forward_id"],
            "forward_elasped": _ms(row["forward"]),
            "backward_elasped": _ms(row["backward"]),
            "unit": "ms",
            **self._described.get(row["forward_id"], {}),
        }

    def save_results(self, folder: str) -> str:
        """time.json, for `op-tools report`: into a capture's folder; returns its path."""
        path = os.path.join(folder, results.TIME)
        rows = [sample._asdict() for sample in self.samples()]
        dropped = self._last.dropped
        columns = list(Sample._fields)
        names = {str(number): name for number, name in self.threads.items()}
        return results.save(path, "OpTimeMeasure", columns, rows, dropped=dropped, threads=names)

    def report(self) -> None:
        print(
            f"{'name':<44} {'phase':<9} {'count':>7} {'total ms':>10} {'mean ms':>9} {'p50 ms':>9} {'p99 ms':>9} {'share':>6}  most of it at"
        )
        rows = self.table()
        for r in rows:
            print(
                f"{r['name']:<44} {r['phase']:<9} {r['count']:>7} {r['total']:>10.3f} {r['mean']:>9.4f} "
                f"{r['p50']:>9.4f} {r['p99']:>9.4f} {r['share']:>6.1%}  {_where(r)}"
            )
        dropped = self._last.dropped
        more = f", {dropped} more not kept" if dropped else ""
        total = sum(r["total"] for r in rows)
        calls = many(sum(r["count"] for r in rows), "call")
        print(f"OpTimeMeasure: {calls}, {total:.3f} ms in operators{more}")
        if rows:
            self._save("op elasped info", self.save_csv)


def _where(row: dict) -> str:
    """The place that took most of an operator's time, and how many others there are."""
    place = row["place"] or "-"
    folder, slash, rest = place.rpartition("/")
    if slash:  # "layer.fc /home/me/train.py:3 forward": the file's name is enough here
        place = folder[: folder.rfind(" ") + 1] + rest
    return place + (f" and {row['places'] - 1} more" if row["places"] > 1 else "")


def _ms(ns: int) -> str:
    return f"{ns / 1e6:.8f}" if ns else "-"
