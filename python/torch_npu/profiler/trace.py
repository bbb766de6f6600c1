# SPDX-License-Identifier: Apache-2.0
"""A recorded trace as objects: operators of the host, work of the devices, steps."""

from __future__ import annotations

import bisect
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_STEP = re.compile(r"ProfilerStep#(\d+)")
_DEVICE_WORK = {"kernel", "gpu_memcpy", "gpu_memset"}
COLLECTIVE = "hccl::"


@dataclass
class Op:
    """A call of an operator on the host. Times in microseconds."""

    name: str
    start: float
    duration: float
    thread: object
    args: dict
    children: float = 0.0  # host time of operators called by it
    work: list[Work] = field(default_factory=list)
    parent: Op | None = None
    stack: tuple[str, ...] = ()  # of Python functions, innermost first; with with_stack

    @property
    def end(self) -> float:
        return self.start + self.duration

    @property
    def outermost(self) -> Op:
        op = self
        while op.parent is not None:
            op = op.parent
        return op


@dataclass
class HostCall:
    """A call of the device's runtime on the host: it launches work, or waits for the device."""

    name: str
    start: float
    duration: float
    process: int
    thread: int
    correlation: int
    line: str  # of the user's program; empty where it is not known
    op: int | None  # the operator's number

    @property
    def end(self) -> float:
        return self.start + self.duration

    @property
    def is_wait(self) -> bool:
        return self.name.endswith("Synchronize")


@dataclass
class Work:
    """One piece of work of a device."""

    name: str
    sort: str  # kernel, gpu_memcpy, gpu_memset
    start: float
    duration: float
    device: int
    stream: int
    args: dict

    @property
    def end(self) -> float:
        return self.start + self.duration

    @property
    def is_collective(self) -> bool:
        return self.name.startswith(COLLECTIVE)

    @property
    def is_receive(self) -> bool:
        return self.is_collective and "recv" in self.name

    @property
    def type(self) -> str:
        """As Ascend names types: MatMul, Add."""
        base = self.args.get("operator", self.name) if self.sort == "kernel" else self.name
        base = base.rpartition("::")[2].split(".")[0].split(" ")[0].strip("_")
        return "".join(part[:1].upper() + part[1:] for part in base.split("_")) or self.name


@dataclass
class Step:
    number: int
    start: float
    end: float


class Trace:
    def __init__(self, path: Path) -> None:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RuntimeError(
                f"torch_npu.profiler.analyse: {str(path.parent.parent)!r} holds no recording ({path.name})."
            ) from None
        except ValueError as error:
            raise RuntimeError(
                f"torch_npu.profiler.analyse: {str(path)!r} cannot be read: {error}. Was the program "
                "ended while it wrote?"
            ) from None
        self.events = content["traceEvents"] if isinstance(content, dict) else content
        self.base_ns = (
            int(content.get("baseTimeNanoseconds", 0)) if isinstance(content, dict) else 0
        )

    def ns(self, at: float) -> int:
        """A time of the trace, since the epoch."""
        return self.base_ns + round(at * 1000)

    def _of(self, *categories: str) -> list[dict]:
        return [e for e in self.events if e.get("cat") in categories and e.get("ph") == "X"]

    @cached_property
    def work(self) -> list[Work]:
        rows = [
            Work(
                e["name"],
                e["cat"],
                float(e["ts"]),
                float(e["dur"]),
                int(e["pid"]),
                int(e["tid"]),
                e.get("args", {}),
            )
            for e in self._of(*_DEVICE_WORK)
        ]
        return sorted(rows, key=lambda w: w.start)

    @cached_property
    def ops(self) -> list[Op]:
        """Operators, with the work each launched itself and the time its own calls took."""
        rows = [
            Op(e["name"], float(e["ts"]), float(e["dur"]), e["tid"], e.get("args", {}))
            for e in self._of("cpu_op")
        ]
        rows.sort(key=lambda op: (op.start, -op.duration))
        open_ops: dict[object, list[Op]] = defaultdict(list)
        for op in rows:
            stack = open_ops[op.thread]
            while stack and stack[-1].end <= op.start:
                stack.pop()
            if stack:
                op.parent = stack[-1]
                op.parent.children += op.duration
            stack.append(op)
        by_id = {op.args.get("External id"): op for op in rows}
        for work in self.work:
            op = by_id.get(work.args.get("External id"))
            if op is not None:
                op.work.append(work)
        self._note_stacks(rows)
        return rows

    def _note_stacks(self, ops: list[Op]) -> None:
        """The Python functions that each operator was called in."""
        functions: dict[object, list[dict]] = defaultdict(list)
        for event in sorted(self._of("python_function"), key=lambda e: (e["ts"], -e["dur"])):
            functions[event["tid"]].append(event)
        place: dict[object, int] = defaultdict(int)
        stacks: dict[object, list[dict]] = defaultdict(list)
        for op in ops if functions else ():
            mine, stack = functions[op.thread], stacks[op.thread]
            while place[op.thread] < len(mine) and mine[place[op.thread]]["ts"] <= op.start:
                event = mine[place[op.thread]]
                while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
                    stack.pop()
                stack.append(event)
                place[op.thread] += 1
            while stack and stack[-1]["ts"] + stack[-1]["dur"] <= op.start:
                stack.pop()
            op.stack = tuple(e["name"] for e in reversed(stack) if "(" in e["name"])

    @cached_property
    def launching_op(self) -> dict[int, Op]:
        """The operator that launched a piece of work, by id() of the work."""
        return {id(work): op for op in self.ops for work in op.work}

    @cached_property
    def steps(self) -> list[Step]:
        found = []
        for event in self._of("user_annotation"):
            match = _STEP.match(event["name"])
            if match:
                start = float(event["ts"])
                found.append(Step(int(match[1]), start, start + float(event["dur"])))
        return sorted(found, key=lambda step: step.start)

    @cached_property
    def _step_starts(self) -> list[float]:
        return [step.start for step in self.steps]

    @cached_property
    def host_calls(self) -> list[HostCall]:
        calls = [
            HostCall(
                e["name"],
                float(e["ts"]),
                float(e["dur"]),
                int(e["pid"]),
                int(e["tid"]),
                e["args"]["correlation"],
                e["args"].get("Call site", ""),
                e["args"].get("External id"),
            )
            for e in self._of("privateuse1_runtime")
            if "correlation" in e.get("args", {})
        ]
        return sorted(calls, key=lambda call: call.start)

    @cached_property
    def launches(self) -> dict[int, HostCall]:
        """What launched each piece of work, by its correlation."""
        return {call.correlation: call for call in self.host_calls if not call.is_wait}

    @cached_property
    def ops_by_id(self) -> dict[int, Op]:
        return {op.args["External id"]: op for op in self.ops if "External id" in op.args}

    @cached_property
    def _forward_lines(self) -> dict[int, str]:
        """The line of the forward call that made each node of the graph, by sequence number."""
        found: dict[int, str] = {}
        for call in self.host_calls:
            op = self.ops_by_id.get(call.op)
            while op is not None and call.line:
                number = op.args.get("Sequence number", -1)
                if number >= 0 and not op.args.get("Fwd thread id"):
                    found[number] = call.line  # the last one begins before the node is made
                op = op.parent
        return found

    def line_of(self, call: HostCall | None) -> str:
        """Where in the user's program; for a call of the backward pass, where the forward is."""
        if call is None:
            return ""
        op = self.ops_by_id.get(call.op)
        while op is not None:
            if op.args.get("Fwd thread id") or op.name.startswith("autograd::engine"):
                forward = self._forward_lines.get(op.args.get("Sequence number", -1))
                if forward:
                    return f"{forward} (backward)"
            op = op.parent
        return call.line

    def step_of(self, work: Work) -> Step | None:
        """The step whose host code launched it: it may run after that step's end."""
        launch = self.launches.get(work.args.get("correlation"))
        at = launch.start if launch is not None else work.start
        index = bisect.bisect_right(self._step_starts, at) - 1
        if index < 0 or (at > self.steps[index].end and index == len(self.steps) - 1):
            return None
        return self.steps[index]

    @cached_property
    def process(self) -> int:
        """The number of the process that was profiled."""
        found = self._of("cpu_op", "user_annotation", "privateuse1_runtime")
        return int(found[0]["pid"]) if found else 0

    @cached_property
    def annotations(self) -> list[dict]:
        """The user's ranges on the host."""
        return [e for e in self._of("user_annotation") if not _STEP.match(e["name"])]

    @cached_property
    def functions(self) -> list[dict]:
        """Calls of Python functions; with with_stack."""
        return self._of("python_function")

    @cached_property
    def device_names(self) -> dict[int, str]:
        """ "Ascend910B1", by the device's number."""
        return {
            e["pid"]: str(e["args"]["name"]).partition(": ")[2]
            for e in self.events
            if e.get("ph") == "M" and e.get("name") == "process_name" and isinstance(e["pid"], int)
        }

    @cached_property
    def _ops_of_threads(self) -> dict[object, tuple[list[float], list[Op]]]:
        found: dict[object, tuple[list[float], list[Op]]] = {}
        for op in self.ops:
            starts, ops = found.setdefault(op.thread, ([], []))
            starts.append(op.start)
            ops.append(op)
        return found

    def op_at(self, thread: object, at: float) -> Op | None:
        """The innermost operator that a thread was inside of."""
        starts, ops = self._ops_of_threads.get(thread, ([], []))
        index = bisect.bisect_right(starts, at) - 1
        op = ops[index] if index >= 0 else None
        while op is not None and op.end < at:
            op = op.parent
        return op

    @cached_property
    def memory(self) -> list[dict]:
        return [e for e in self.events if e.get("name") == "[memory]"]

    @property
    def devices(self) -> list[int]:
        return sorted({work.device for work in self.work})
