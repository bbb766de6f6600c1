# SPDX-License-Identifier: Apache-2.0
"""OpOverflowCheck: the operator whose inputs were finite and whose results are not."""

from __future__ import annotations

import math

from op_tools.core import _C, options
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import describe_tensors, many, place_of


class OpOverflowCheck(OpTool):
    family = "OVERFLOW_CHECK"
    feature = "overflow_check"

    def __init__(self) -> None:
        super().__init__()
        # Of the call to blame; 0.1 us a call and 2 us a module.
        self.call_sites = True
        self.module_paths = True

    def make_core(self) -> _C.Overflow:
        return _C.Overflow(
            history=options.number("OP_OVERFLOW_CHECK_HISTORY", 16),
            limit=options.number("OP_OVERFLOW_CHECK_LIMIT", 100),
        )

    def events(self) -> list[dict]:
        """Calls with infinities or NaN in their results, in order; after stop()."""
        return self._last.events()

    def first(self) -> dict | None:
        """The first call whose inputs were finite and whose results are not; after stop()."""
        return next((event for event in self.events() if event["first_bad"]), None)

    def history(self) -> list[dict]:
        """The calls before and at first()."""
        return self._last.history()

    def report(self) -> None:
        core = self._last
        first = self.first()
        if first is not None:
            print(f"OpOverflowCheck: {first['op']} made {_bad(first)} from finite inputs")
            print("OpOverflowCheck:   " + ", ".join(place_of(first)))
            for record in self.history():
                tensors = (
                    f"{describe_tensors(record['inputs'])} -> {describe_tensors(record['outputs'])}"
                )
                print(f"OpOverflowCheck:   {record['number']:>8} {record['op']:<36} {tensors}")
        unread = f", {core.unreadable} could not be read" if core.unreadable else ""
        print(
            f"OpOverflowCheck: {many(core.checked, 'tensor')} checked{unread}, "
            f"{many(core.total, 'call')} with infinities or NaN in their results"
        )


def _bad(event: dict) -> str:
    parts = []
    for tensor in event["tensors"]:
        if not tensor["output"]:
            continue
        which = f"{'argument' if tensor['written'] else 'output'} {tensor['position']}"
        if tensor["item"]:
            which += f", tensor {tensor['item']}"
        if stats := tensor["statistics"]:
            kinds = [f"{stats[k]} {k}" for k in ("nan", "+inf", "-inf") if stats[k]]
            parts.append(f"{', '.join(kinds)} of {stats['count']} ({which})")
        else:
            kind = "NaN" if math.isnan(tensor["magnitude"]) else "an infinity"
            parts.append(f"{kind} ({which})")
    return "; ".join(parts)
