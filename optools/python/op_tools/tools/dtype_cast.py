# SPDX-License-Identifier: Apache-2.0
"""OpDtypeCast: runs chosen operators in another dtype."""

from __future__ import annotations

import torch

from op_tools.core import _C, options
from op_tools.core.op_tool import OpTool
from op_tools.core.printing import print_counted

VARIABLE = "OP_DTYPE_CAST_DICT"
DEFAULT = "torch.float16->torch.float32,torch.bfloat16->torch.float32"


def parse_dtypes(value: str, variable: str = VARIABLE) -> dict[torch.dtype, torch.dtype]:
    """`torch.float16->torch.float32, ...` -> a dict."""
    out = {}
    for piece in filter(None, (p.strip() for p in value.split(","))):
        names = [side.strip().removeprefix("torch.") for side in piece.split("->")]
        dtypes = [getattr(torch, name, None) for name in names]
        if len(dtypes) != 2 or not all(isinstance(d, torch.dtype) for d in dtypes):
            raise ValueError(
                f"{variable}: {piece!r} is not of the form torch.float16->torch.float32"
            )
        out[dtypes[0]] = dtypes[1]
    return out


class OpDtypeCast(OpTool):
    family = "DTYPE_CAST"
    feature = "cast_dtype"
    variables = ("DICT",)
    changes_results = True

    def make_core(self) -> _C.Cast:
        return _C.Cast(parse_dtypes(options.text(VARIABLE, DEFAULT)))

    def counts(self) -> list[tuple[str, str, int]]:
        """(operator, why not or "", calls); after stop()."""
        return self._last.counts()

    def report(self) -> None:
        print_counted("OpDtypeCast", "ran in another dtype", self.counts())
