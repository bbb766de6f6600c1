# SPDX-License-Identifier: Apache-2.0
"""OpFallback: runs chosen operators on the CPU."""

from __future__ import annotations

from op_tools.core import _C
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import print_counted


class OpFallback(OpTool):
    family = "FALLBACK"
    feature = "fallback"
    changes_results = True

    def make_core(self) -> _C.Fallback:
        return _C.Fallback()

    def counts(self) -> list[tuple[str, str, int]]:
        """(operator, why not or "", calls); after stop()."""
        return self._last.counts()

    def report(self) -> None:
        print_counted("OpFallback", "ran on the cpu", self.counts())
