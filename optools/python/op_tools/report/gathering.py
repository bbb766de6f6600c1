# SPDX-License-Identifier: Apache-2.0
"""Everything a report shows, as one map that JSON can hold: columns of numbers, texts once each."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from op_tools import captures
from op_tools.captures import Capture, CaptureError, Record, judging, reproducer
from op_tools.core import results
from op_tools.core.files import make_inside
from op_tools.core.printing import many
from op_tools.core.progress import counted
from op_tools.core.results import number, plain
from op_tools.core.verdict import ORDER, worse_e
from op_tools.ditorch_compat import ditorch_folders
from op_tools.report import against, steps, work
from op_tools.report.histograms import Histograms
from op_tools.report.memory import Memory

RESULTS_SHOWN = 5000  # of judged calls, with their worst elements; the worst of them
TEXTS = ("op", "phase", "module", "site", "api", "signature", "verdict", "reason", "raised")
NUMBERS = "number step thread forward start took device device_start e flops bytes".split()
# As in a row of results.compare: what the page shows of one result.
RESULT = (
    "result dtype verdict e over elements worst got expected max_abs_diff max_relative_diff "
    "cosine_similarity reason"
).split()


@dataclass
class Options:
    judge: bool = False
    values: int = 4 << 30  # bytes of tensors to read for histograms
    reproducers: int = 0
    to: str = "."  # the folder links are relative to
    against: str = ""  # the folder of another run
    language: str = "en"  # of the page, until its reader chooses another
    judged_by: Callable[[Record], dict] = judging.judge


@dataclass
class Call:
    """A row."""

    number: int
    op: str = ""
    phase: str = ""
    module: str = ""
    site: str = ""
    api: str = ""
    signature: str = ""
    shapes: str = ""  # of the tensors it was given
    verdict: str = ""
    reason: str = ""
    raised: str = ""
    step: int = 0
    thread: int = 0
    forward: int = 0
    start: float | None = None  # us since the first
    took: float | None = None  # us
    device: float | None = None  # us, where the device has a clock
    device_start: float | None = None  # us since the first
    flops: float | None = None
    bytes: float | None = None  # read and made
    e: float | None = None
    results: list[dict] = field(default_factory=list)
    histograms: list = field(default_factory=list)


class Gathering:
    def __init__(self, folder: str, options: Options) -> None:
        self.folder = folder
        self.options = options
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.calls: list[Call] = []
        self.links: dict[int, str] = {}
        self.written: set[int] = set()  # calls whose reproducers are of this report
        self.skips: Counter[tuple[str, str]] = Counter()  # (operator, why) -> calls
        self.histograms = Histograms(options.values)
        self.memory = Memory()
        self.losses = steps.Losses()
        self.steps: list[steps.Step] = []
        self.threads: dict[int, str] = {}
        self.capture = self._open()

    def _open(self) -> Capture | None:
        if not os.path.isdir(self.folder):
            raise CaptureError(f"{self.folder} is no folder")
        if captures.find(self.folder):
            return captures.open(self.folder)
        if not any(map(self._path, (results.COMPARE, results.TIME))):
            hint = ""
            if ditorch_folders.find(self.folder):
                hint = "; ditorch's folders become one by `op-tools import`"
            raise CaptureError(f"no capture at or below {self.folder}{hint}")
        return None

    def _path(self, name: str) -> str | None:
        folders = [self.folder]
        if getattr(self, "capture", None) is not None:
            folders.append(self.capture.path)
        paths = [os.path.join(folder, name) for folder in folders]
        return next((path for path in paths if os.path.isfile(path)), None)

    # ---- the capture -------------------------------------------------------------
    def read_capture(self) -> None:
        if self.capture is None:
            return
        first = None
        for record in counted(self.capture, "reading the capture", len(self.capture)):
            first = record.start_ns if first is None else first
            call = _call(record, first)
            if self.options.judge:
                _judged(call, self.options.judged_by(record))
            self._measure(call, record)
            self.memory.add(record)
            self.losses.add(record)
            self.calls.append(call)
        self.problems += self.capture.problems
        if not self.capture.finished:
            self.problems.append(
                f"{self.capture.path}: not finished: its process ended before the capture stopped"
            )
        for row in self._rows(results.THREADS, "threads")[1]:
            if isinstance(row.get("number"), int):
                self.threads[row["number"]] = row.get("name") or ""
        end = self.capture.end or {}
        if end.get("why"):
            self.problems.append(f"{self.capture.path}: capturing ended early: {end['why']}")
        if end.get("refused"):
            self.notes.append(f"{many(end['refused'], 'call')} came after a limit: not captured")
        for why, count in sorted((end.get("unread") or {}).items()):
            self.notes.append(f"{many(count, 'tensor')} without contents: {why}")

    def _measure(self, call: Call, record: Record) -> None:
        if self.options.values <= 0:
            return
        for place, ref in record.tensors():
            try:
                found = self.histograms.number(ref)
            except CaptureError as error:
                self.problems.append(f"call {record.number} {record.op}, {place}: {error}")
                continue
            if found is not None:
                call.histograms.append([place, ref.describe(), found])

    # ---- results of other tools ---------------------------------------------------
    def _rows(self, name: str, what: str) -> tuple[dict, list[dict]]:
        path = self._path(name)
        if path is None:
            return {}, []
        try:
            held = results.load(path, what)
        except results.ResultsError as error:
            self.problems.append(str(error))
            return {}, []
        self.problems += held["problems"]
        return held, held["rows"]

    def read_times(self) -> None:
        held, rows = self._rows(results.TIME, "OpTimeMeasure")
        if not rows:
            return
        first = min((number(row.get("start_ns")) or 0 for row in rows), default=0)
        for call, row in self._found(rows, "OpTimeMeasure"):
            launch, device = number(row.get("launch_ns")), number(row.get("device_ns"))
            took = launch if launch is not None else number(row.get("took_ns"))
            call.took = took / 1e3 if took is not None else call.took
            call.device = device / 1e3 if device is not None and device >= 0 else None
            if call.start is None:
                call.start = ((number(row.get("start_ns")) or 0) - first) / 1e3
        self._place_on_device()
        if held.get("dropped"):
            self.notes.append(f"OpTimeMeasure: {many(held['dropped'], 'call')} more, not kept")
        names = held.get("threads")  # of this run, where the capture is of another
        for number_of, name in (names if isinstance(names, dict) else {}).items():
            if number_of.isdecimal() and isinstance(name, str):
                self.threads[int(number_of)] = name

    def _place_on_device(self) -> None:
        """Where kernels are on the device's own lane: in the order of their launches, none before
        its launch and none before the end of the one ahead of it."""
        free = 0.0
        for call in self.calls:
            if call.device and call.start is not None:
                call.device_start = max(call.start, free)
                free = call.device_start + call.device

    def name_steps(self) -> None:
        phases: dict[int, set[str]] = {}
        for call in self.calls:
            phases.setdefault(call.step, set()).add(call.phase)
        self.steps = steps.named(phases)
        self.losses.put(self.steps)

    def read_verdicts(self) -> None:
        if self.options.judge:  # of the same results: one verdict is enough
            return
        held, rows = self._rows(results.COMPARE, "OpAutoCompare")
        for call, row in self._found(rows, "OpAutoCompare"):
            _add_result(call, row)
        for skip in held.get("skips") or []:
            if isinstance(skip, list) and len(skip) == 3 and isinstance(skip[2], int):
                self.skips[str(skip[0]), str(skip[1])] += skip[2]
        if held.get("dropped"):
            self.notes.append(f"OpAutoCompare: {many(held['dropped'], 'result')} more, not kept")

    def _found(self, rows: list[dict], tool: str) -> Iterator[tuple[Call, dict]]:
        """Rows with the calls they are of; how many have none is said."""
        find = self._finder(not self.calls)
        lost = 0
        for row in rows:
            call = find(row)
            if call is None:
                lost += 1
            else:
                yield call, row
        if lost:
            self.notes.append(f"{tool}: {lost} of its calls are not in the capture: not shown")

    def _finder(self, make: bool) -> Callable[[dict], Call | None]:
        """The call a row is of: by number where the operator is the same (tools that ran at once
        count alike), else the next of that operator, phase and step."""
        by_number = {call.number: call for call in self.calls}
        waiting: dict[tuple, Iterator[Call]] = {}
        last: tuple = ()

        def find(row: dict) -> Call | None:
            nonlocal last
            given = row.get("number")
            call = by_number.get(given) if isinstance(given, int) else None
            if call is not None and call.op == row.get("op"):
                return call
            if make:
                call = by_number[given] = _from_row(row)
                self.calls.append(call)
                return call
            key = tuple(row.get(name) for name in ("op", "phase", "step"))
            if last and last[0] == given:  # another result of that call
                return last[1]
            if key not in waiting:
                waiting[key] = iter([c for c in self.calls if (c.op, c.phase, c.step) == key])
            last = (given, next(waiting[key], None))
            return last[1]

        return find

    # ---- reproducers ---------------------------------------------------------------
    def find_reproducers(self) -> None:
        base = self.options.to
        if self.options.reproducers > 0 and self.capture is not None:
            bad = [c for c in self.calls if c.verdict in ("error", "overflow", "warn")]
            bad.sort(key=lambda c: (-ORDER.index(c.verdict), -(c.e or 0.0), c.number))
            wanted = {c.number: c for c in bad[: self.options.reproducers]}
            for record in self.capture if wanted else ():
                if record.number in wanted:
                    self._reproduce(record, wanted[record.number], base)
        taken = self.capture.head.get("time") if self.capture else None
        numbers = {call.number: call.op for call in self.calls}
        there = 0
        for path, held in reproducer.find(self.folder, self.problems):
            number, op = held.get("number"), held.get("op")
            if isinstance(number, int) and numbers.get(number) == op and held["capture"] == taken:
                there += self.links.setdefault(number, link := os.path.relpath(path, base)) == link
                there -= number in self.written
        if there > 0:
            self.notes.append(
                f"{many(there, 'reproducer')} was in the folder before: its script is untrusted; "
                "read it before you run it"
            )

    def _reproduce(self, record: Record, call: Call, base: str) -> None:
        try:
            folder = make_inside(base, "reproducers", reproducer.folder_name(record))
            reproducer.write(record, folder, call.reason)
            self.links[call.number] = os.path.relpath(folder, base)
            self.written.add(call.number)
        except (CaptureError, FileExistsError) as error:
            self.notes.append(f"no reproducer of call {record.number} {record.op}: {error}")


def _call(record: Record, first: int) -> Call:
    timed = bool(record.end_ns)
    return Call(
        number=record.number,
        op=record.op,
        phase=record.phase,
        module=record.module,
        site=record.site,
        api=record.api,
        signature=record.signature(),
        shapes=against.shapes_of(record),
        raised=record.raised or "",
        step=record.step,
        thread=record.thread,
        forward=record.forward,
        start=(record.start_ns - first) / 1e3 if timed else None,
        took=(record.end_ns - record.start_ns) / 1e3 if timed else None,
        flops=work.flops(record),
        bytes=work.moved(record),
    )


def _from_row(row: dict) -> Call:
    def text(name: str) -> str:
        return row[name] if isinstance(row.get(name), str) else ""

    def whole(name: str) -> int:
        return row[name] if isinstance(row.get(name), int) else 0

    return Call(
        number=whole("number"),
        **{name: text(name) for name in ("op", "phase", "module", "site", "api")},
        **{name: whole(name) for name in ("step", "thread", "forward")},
    )


def _judged(call: Call, found: dict) -> None:
    call.verdict, call.reason = found["verdict"], found["reason"]
    call.results = found["results"]
    call.e = judging.worst_e(found)


def _add_result(call: Call, row: dict) -> None:
    """One more result of a call; the call's verdict is its worst."""
    verdict = row.get("verdict")
    if verdict not in ORDER:
        return
    e = number(row.get("e"))
    call.results.append(row)
    order = ORDER.index
    if not call.verdict or order(verdict) > order(call.verdict):
        call.verdict, call.reason = verdict, str(row.get("reason") or "")
    if verdict != "skip":
        call.e = worse_e(call.e, e)


# ---- what the page gets -----------------------------------------------------------
class Texts:
    """Each text once."""

    def __init__(self) -> None:
        self.table: list[str] = [""]
        self._numbers = {"": 0}

    def number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self.table)
            self.table.append(text)
        return self._numbers[text]


def gather(folder: str, options: Options) -> dict:
    """The report's data. Raises CaptureError where there is nothing to report on."""
    found = _gathered(folder, options)
    found.find_reproducers()
    if found.histograms.unread:
        found.notes.append(
            f"{many(found.histograms.unread, 'tensor')} without an exponent histogram: more than --values "
            "says to read"
        )
    if not found.calls and not found.problems:
        found.problems.append(f"{folder}: the capture has no calls")
    data = _packed(found)
    if options.against:
        other = _gathered(options.against, replace(options, values=0, reproducers=0))
        data["problems"] += other.problems
        compared = against.compare(found, other)
        for name in ("took", "e"):
            compared[name] = [_short(value) for value in compared[name]]
        compared["operators"] = [[_short(v) for v in row] for row in compared["operators"]]
        try:
            first, number_compared = against.first_difference(found, other)
        except CaptureError as error:  # captures of two versions, one without contents
            first, number_compared = None, 0
            data["notes"].append(str(error))
        compared["first"], compared["compared"] = first, number_compared
        data["against"] = plain(compared)
    return data


def _gathered(folder: str, options: Options) -> Gathering:
    found = Gathering(folder, options)
    found.read_capture()
    found.read_times()
    found.read_verdicts()
    found.name_steps()
    return found


def _packed(found: Gathering) -> dict:
    calls = found.calls
    texts = Texts()
    data: dict = {"texts": texts.table, "verdicts": list(ORDER)}
    data["calls"] = {name: [texts.number(getattr(call, name)) for call in calls] for name in TEXTS}
    for name in NUMBERS:
        data["calls"][name] = [_short(getattr(call, name)) for call in calls]
    order = sorted(
        (i for i, call in enumerate(calls) if call.results), key=lambda i: _badness(calls[i])
    )
    left_out = 0
    data["results"], room = {}, RESULTS_SHOWN
    for i in order:
        if room < len(calls[i].results):
            left_out += 1
            continue
        room -= len(calls[i].results)
        data["results"][i] = [
            [_field(row.get(name)) for name in RESULT] for row in calls[i].results
        ]
    if left_out:
        found.notes.append(f"{many(left_out, 'call')} that passed: only the E is shown")
    data["histograms"] = found.histograms.table
    data["tensors"] = {
        i: [[texts.number(place), texts.number(said), n] for place, said, n in call.histograms]
        for i, call in enumerate(calls)
        if call.histograms
    }
    data["links"] = found.links
    data["problems"], data["notes"] = found.problems, found.notes
    data["skips"] = _skips(found)
    data["steps"] = [
        [s.number, s.label, s.is_step, plain(s.loss), s.loss_call] for s in found.steps
    ]
    data["memory"] = found.memory.curve([call.start for call in calls])
    data["threads"] = found.threads
    head = found.capture.head if found.capture else {}
    data["about"] = {
        "folder": found.capture.path if found.capture else found.folder,
        "made": time.strftime("%Y-%m-%d %H:%M:%S"),
        "head": {str(key): str(value) for key, value in head.items()},
        "finished": found.capture is None or found.capture.finished,
        "judged": any(call.verdict for call in calls),
        "language": found.options.language,
    }
    return data


def _badness(call: Call) -> tuple:
    e = call.e if call.e is not None else -1.0
    return (-ORDER.index(call.verdict), -(e if e == e else float("inf")), call.number)


def _short(value: float | None) -> object:
    """As few digits as a chart needs."""
    if isinstance(value, float) and value == value and abs(value) != float("inf"):
        rounded = float(f"{value:.6g}") if abs(value) < 1e5 else round(value, 1)
        return int(rounded) if rounded == int(rounded) else rounded
    return plain(value)


def _field(value: object) -> object:
    if isinstance(value, float):
        value = float(f"{value:.9g}")
    return plain(value)


def _skips(found: Gathering) -> list[list]:
    counts = found.skips + Counter((c.op, c.reason) for c in found.calls if c.verdict == "skip")
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [[op, reason, count] for (op, reason), count in ordered]


def verdict_counts(data: dict) -> dict[str, int]:
    """Calls by verdict."""
    texts = data["texts"]
    counts: dict[str, int] = {}
    for n in data["calls"]["verdict"]:
        if n:
            counts[texts[n]] = counts.get(texts[n], 0) + 1
    return counts
