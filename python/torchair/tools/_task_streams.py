# SPDX-License-Identifier: Apache-2.0
"""The task streams of an Ascend graph, in the Chrome trace files that the engine dumps.

Tasks of one stream run one after the other. Streams run side by side, except that a wait ends after
the record with the same number. A communication kernel with schemMode 1 starts when all of its vector
cores are free, so two that may run at the same time and need more cores than there are can block
each other.
"""

import argparse
import json
import os
import re
from collections import defaultdict

_SYNC = re.compile(r"(EVENT_RECORD|MEM_WRITE_VALUE|EVENT_WAIT|MEM_WAIT_VALUE)_(\d+)")
_RECORDS = ("EVENT_RECORD", "MEM_WRITE_VALUE")
_GAP = 0.2  # between the tasks of an aligned trace
_MARK, _MARKED_LENGTH = "dead_lock_", 49.5


def deadlock_check(input_path, output_path, aivec_total: int, merge_gap: float = 0.0) -> None:
    """Prints the pairs of kernels that may block each other. Where there are any, writes the trace
    with their names marked to `output_path`, by default <input>_deadlock_check.json."""
    events = _read(input_path, merge_gap)
    pairs = _conflicts(_Streams(events), aivec_total)
    if not pairs:
        print("[RESULT] No deadlock risks detected.")
        return
    print(f"\n[RESULT] Deadlock risk detected! {len(pairs)} conflicting pair(s):\n")
    for one, other in pairs:
        total = _cores(one) + _cores(other)
        print(f"  CONFLICT: {_told(one)}  <->  {_told(other)}  sum={total} > {aivec_total}")
    for task in {id(t): t for pair in pairs for t in pair}.values():
        if not task["name"].startswith(_MARK):
            task["name"] = _MARK + task["name"]
        task["dur"] = _MARKED_LENGTH
    print(
        f"\n[INFO] Output written to {_write(events, input_path, output_path, '_deadlock_check')}"
    )


def filter_comm_ops(input_path, output_path, merge_gap: float = 0.0) -> str:
    """Writes the trace with only its communication kernels, records and waits to `output_path`, by
    default <input>_filtered.json, and returns that path."""
    events = _read(input_path, merge_gap)
    kept = [e for e in events if _sync(e) is not None or _communicates(e)]
    for task in kept:
        if _sync(task) is None and _args(task).get("schemMode") != 1:
            print(f"  [WARNING] {_told(task)}: schemMode is {_args(task).get('schemMode')}, not 1")
    print(f"{len(kept)} of {len(events)} tasks kept")
    return _write(kept, input_path, output_path, "_filtered")


def align_trace_json(input, output, merge_gap: float = 0.0) -> str:
    """Writes the trace with times that show the order: tasks of a stream follow each other at once,
    and a wait lasts until its record has ended. The default path is <input>.aligned.json."""
    events = _read(input, merge_gap)
    streams = _Streams(events)
    _align(streams)
    events += _arrows(streams)
    path = _write(events, input, output, ".aligned")
    print(path)
    return path


# ---- files ------------------------------------------------------------------------


def _read(path, merge_gap: float) -> list[dict]:
    with open(path, encoding="utf-8") as file:
        events = json.load(file)
    if not isinstance(events, list) or not all(isinstance(e, dict) for e in events):
        raise ValueError(f"{path}: expected a Chrome trace, a list of events")
    for source, target in _merge(events, merge_gap):
        print(f"[INFO] Merged stream: {source} -> {target}")
    return events


def _write(events: list[dict], input_path, output_path, suffix: str) -> str:
    base, ending = os.path.splitext(os.fspath(input_path))
    path = os.fspath(output_path) if output_path else f"{base}{suffix}{ending}"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(events, file, ensure_ascii=False, indent=2)
    return path


def _merge(events: list[dict], gap: float) -> list[tuple[str, str]]:
    """A STREAM_ACTIVE task runs the tasks of another stream at the end of its own. The events get
    the stream that runs them. Returns (stream, stream that runs it)."""
    streams = defaultdict(list)
    for event in events:
        streams[event.get("tid")].append(event)
    moved = []
    starts = [e for e in events if _is_start(e)]
    for event in sorted(starts, key=lambda e: e.get("ts", 0)):
        source, target = f"stream{_args(event)['Active Stream Id']}", event.get("tid")
        if source == target or source not in streams:
            continue
        tasks = streams.pop(source)
        end = max(e.get("ts", 0) + e.get("dur", 0) for e in streams[target])
        shift = end + gap - min(e.get("ts", 0) for e in tasks)
        for task in tasks:
            task["ts"], task["tid"] = task.get("ts", 0) + shift, target
            if "Stream Id" in _args(task) and str(target)[6:].isdigit():
                task["args"]["Stream Id"] = int(target[6:])
        streams[target] += tasks
        moved.append((source, target))
    return moved


def _is_start(event: dict) -> bool:
    named = "STREAM_ACTIVE" in (event.get("name"), _args(event).get("Task Type"))
    return named and "Active Stream Id" in _args(event)


# ---- tasks --------------------------------------------------------------------------


def _args(task: dict) -> dict:
    return task.get("args") or {}


def _sync(task: dict) -> tuple[bool, int] | None:
    """(whether it is a record, its number) of a record or a wait."""
    found = _SYNC.fullmatch(task.get("name", ""))
    return None if found is None else (found[1] in _RECORDS, int(found[2]))


def _communicates(task: dict) -> bool:
    name = task.get("name", "").lower()
    if any(part in name for part in ("aiv_", "dispatch", "combine")):
        return True
    told = _args(task).get("ExtendInfo")
    return bool(told) and json.loads(told).get("taskType") == "communication"


def _cores(task: dict) -> int:
    """The vector cores that a kernel needs."""
    args = _args(task)
    blocks, kind = args.get("numBlocks", 0), args.get("Task Type")
    if kind == "KERNEL_MIX_AIC":
        return 0 if args.get("Task Ration") == 0 else 2 * blocks
    return blocks if kind in ("KERNEL_AIVEC", "KERNEL_MIX_AIV") else 0


def _told(task: dict) -> str:
    return (
        f"[{task.get('tid')} TaskId={_args(task).get('Task Id')}] {task.get('name')} "
        f"({_cores(task)} AIVEC)"
    )


class _Streams:
    """Tasks by stream, in their order, and which record each wait waits for."""

    def __init__(self, events: list[dict]):
        self.tasks: dict[str, list[dict]] = defaultdict(list)
        for event in events:
            if event.get("ph") == "X" and "tid" in event:
                self.tasks[event["tid"]].append(event)
        for tasks in self.tasks.values():
            tasks.sort(key=lambda task: _args(task).get("Task Id", 0))
        places: dict[bool, dict] = {True: {}, False: {}}
        for stream, tasks in self.tasks.items():
            for place, task in enumerate(tasks):
                sync = _sync(task)
                if sync is not None:
                    places[sync[0]].setdefault(sync[1], []).append((stream, place))
        # (stream, place) of a wait -> that of its record
        self.record_of = {
            wait: places[True][number][0]
            for number, waits in places[False].items()
            for wait in waits
            if number in places[True]
        }

    def clocks(self) -> dict[tuple[str, int], dict[str, int]]:
        """Of every task: the last task of each stream that has ended when it starts."""
        made = {(s, i): {s: i} for s, tasks in self.tasks.items() for i in range(len(tasks))}
        changed = True
        while changed:  # records may stand in streams that come later
            changed = False
            for (stream, place), clock in made.items():
                for before in ((stream, place - 1), self.record_of.get((stream, place))):
                    for other, last in made.get(before, {}).items():
                        if last > clock.get(other, -1):
                            clock[other] = last
                            changed = True
        return made


def _conflicts(streams: _Streams, aivec_total: int) -> list[tuple[dict, dict]]:
    clocks = streams.clocks()
    found = [
        (stream, place, task)
        for stream, tasks in streams.tasks.items()
        for place, task in enumerate(tasks)
        if _args(task).get("schemMode") == 1 and _communicates(task) and _cores(task)
    ]
    pairs = []
    for i, (stream, place, task) in enumerate(found):
        for other_stream, other_place, other in found[i + 1 :]:
            if stream == other_stream or _cores(task) + _cores(other) <= aivec_total:
                continue
            after = clocks[stream, place].get(other_stream, -1) >= other_place
            before = clocks[other_stream, other_place].get(stream, -1) >= place
            if not after and not before:
                pairs.append((task, other))
    return pairs


# ---- the order as times -------------------------------------------------------------


def _align(streams: _Streams) -> None:
    for tasks in streams.tasks.values():
        _line_up(tasks)
    for _ in range(len(streams.record_of) + 1):
        changed = False
        for (stream, place), (other, record) in streams.record_of.items():
            task, end = streams.tasks[stream][place], _end(streams.tasks[other][record])
            if stream != other and _end(task) < end:
                task["dur"] = end - task["ts"]
                _line_up(streams.tasks[stream])
                changed = True
        if not changed:
            return
    raise ValueError("the trace has records and waits that wait for each other")


def _line_up(tasks: list[dict]) -> None:
    end = -_GAP
    for task in tasks:
        task["ts"] = end + _GAP
        end = _end(task)


def _end(task: dict) -> float:
    return task["ts"] + task.get("dur", 0)


def _arrows(streams: _Streams) -> list[dict]:
    """Chrome draws an arrow from each record to its wait."""
    made = []
    for number, ((stream, place), (other, record)) in enumerate(streams.record_of.items()):
        ends = (
            ("s", streams.tasks[other][record], _end),
            ("f", streams.tasks[stream][place], None),
        )
        for kind, task, time in ends:
            made.append({
                "name": f"PAIR_{_sync(task)[1]}", "cat": "event_record->wait", "ph": kind, "bp": "e",
                "pid": task.get("pid"), "tid": task.get("tid"), "id": number,
                "ts": time(task) if time else task["ts"],
            })  # fmt: skip
    return made


# ---- commands -----------------------------------------------------------------------


def _parser(what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("input", help="a Chrome trace of an Ascend graph (.json)")
    parser.add_argument("-o", "--output", help="where to write; by default beside the input")
    parser.add_argument("--merge-gap", type=float, default=0.0, help="time before merged streams")
    return parser


def main_of_deadlock_check() -> None:
    parser = _parser("Finds communication kernels that may block each other.")
    parser.add_argument("--aivec-total", type=int, default=48, help="vector cores of the chip")
    given = parser.parse_args()
    deadlock_check(given.input, given.output, given.aivec_total, given.merge_gap)


def main_of_filter() -> None:
    given = _parser("Keeps communication kernels, records and waits of a trace.").parse_args()
    filter_comm_ops(given.input, given.output, given.merge_gap)


def main_of_align() -> None:
    given = _parser("Shows the order of a trace's tasks as times.").parse_args()
    align_trace_json(given.input, given.output, given.merge_gap)
