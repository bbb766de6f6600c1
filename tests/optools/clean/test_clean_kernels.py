# SPDX-License-Identifier: Apache-2.0
"""Clean kernels of another make get no error verdict."""

import op_tools
import pytest
import torch
from clean_kernels import KERNELS
from faults import back, host
from optools_helpers import kernel, quiet

CASES = [(each, dtype) for each in KERNELS for dtype in each.dtypes]


def operator(name):
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def test_there_are_enough():
    assert len({each.op for each in KERNELS}) >= 40


@pytest.mark.parametrize(
    "each, dtype", CASES, ids=[f"{k.op} {str(t).removeprefix('torch.')}" for k, t in CASES]
)
def test_a_clean_kernel_has_no_error(accelerator, each, dtype):
    args = [a.to(accelerator) if isinstance(a, torch.Tensor) else a for a in each.arguments(dtype)]
    where = next(a for a in args if isinstance(a, torch.Tensor))

    def run(*args, **kwargs):
        return back(each.function(*host(args), **host(kwargs)), where)

    tool = quiet(op_tools.OpAutoCompare())
    with kernel(each.op, run, accelerator), tool:
        operator(each.op)(*args)
    errors = [(error["op"], error["reason"]) for error in tool.errors()]
    assert errors == []
    judged = {row["op"] for row in tool.table() if row["pass"] or row["warn"]}
    assert "aten::" + each.op in judged, (tool.table(), tool.skips())
