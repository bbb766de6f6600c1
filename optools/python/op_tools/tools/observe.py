# SPDX-License-Identifier: Apache-2.0
"""OpObserve: which operators ran, how often, on what."""

from __future__ import annotations

from op_tools.core import _C, location, options
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import describe_tensors, many


class OpObserve(OpTool):
    family = "OBSERVE"
    feature = "dump_op_args"
    variables = ("MEMORY_MB",)

    def make_core(self) -> _C.Observe:
        return _C.Observe(options.number("OP_OBSERVE_MEMORY_MB", 64) << 20)

    def records(self) -> list[dict]:
        """One dict per call, in the order calls began; after stop()."""
        return self._last.records()

    def counts(self) -> dict[str, dict[str, int]]:
        """operator -> phase -> calls; after stop()."""
        out: dict[str, dict[str, int]] = {}
        for op, phase, count in self._last.counts():
            out.setdefault(op, {})[phase] = count
        return out

    def report(self) -> None:
        if self._verbose:
            return
        counts = self.counts()
        firsts = {record["op"]: record for record in self._last.first_records()}
        for op, phases in sorted(counts.items(), key=lambda item: -sum(item[1].values())):
            calls = " ".join(f"{phase} {count}" for phase, count in phases.items())
            first = firsts.get(op)
            print(f"OpObserve: {op:<44} {calls:<36} {_signature(first)}")
        total = sum(sum(phases.values()) for phases in counts.values())
        dropped = self._last.dropped
        more = f"; the first {many(dropped, 'record')} dropped" if dropped else ""
        print(f"OpObserve: {many(len(counts), 'operator')}, {many(total, 'call')}{more}")


def _signature(record: dict | None) -> str:
    if record is None:
        return ""
    where = f"  {location(record['site'])}" if record["site"] else ""
    return f"{describe_tensors(record['inputs'])} -> {describe_tensors(record['outputs'])}{where}"
