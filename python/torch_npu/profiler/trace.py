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

    @property
    def end(self) -> float:
        return self.start + self.duration


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
        return rows

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
    def _launches(self) -> dict[int, float]:
        """When each piece of work was launched on the host, by its correlation."""
        return {
            e["args"]["correlation"]: float(e["ts"])
            for e in self._of("privateuse1_runtime")
            if "correlation" in e.get("args", {})
        }

    def step_of(self, work: Work) -> Step | None:
        """The step whose host code launched it: it may run after that step's end."""
        at = self._launches.get(work.args.get("correlation"), work.start)
        index = bisect.bisect_right(self._step_starts, at) - 1
        if index < 0 or (at > self.steps[index].end and index == len(self.steps) - 1):
            return None
        return self.steps[index]

    @cached_property
    def memory(self) -> list[dict]:
        return [e for e in self.events if e.get("name") == "[memory]"]

    @property
    def devices(self) -> list[int]:
        return sorted({work.device for work in self.work})
