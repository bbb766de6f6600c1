# SPDX-License-Identifier: Apache-2.0
"""Run with failing_new.cpp preloaded: an allocation of op_tools fails while a tool watches.

    python break_tools.py DEVICE TOOL ...

Each tool is broken at each of its first allocations in turn. A line a time: tool, place, what the
tool says of its failure, calls another tool saw, and what the program saw.
"""

import contextlib
import ctypes
import io
import os
import sys

import op_tools
import torch
from op_tools import _C
from torch import nn

PLACES = 8


def code_of(path: str) -> tuple[int, int]:
    """Addresses of a library's instructions."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            span, mode, *rest = line.split()
            if rest[-1] == path and "x" in mode:
                begin, end = span.split("-")
                return int(begin, 16), int(end, 16)
    raise RuntimeError(f"{path} is not loaded")


def train(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result = model(x)
    result.sum().backward()
    return result.detach()


def main(device: str, names: list[str]) -> None:
    if device == "npu":
        import torch_npu  # noqa: F401
    preloaded = ctypes.CDLL(None)
    preloaded.fail_allocation.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    ours = code_of(os.path.realpath(_C.__file__))
    model = nn.Linear(4, 4).to(device)
    x = torch.linspace(-1, 1, 8, device=device).view(2, 4)
    plain = train(model, x)
    before = _C.dump_dispatcher()
    for name in names:
        for place in range(PLACES):
            other = op_tools.OpObserve()
            said = "the same"
            with contextlib.redirect_stdout(io.StringIO()), other:
                train(model, x)  # the other tool has its memory
                tool = getattr(op_tools, name)().start()
                core = tool._core
                preloaded.fail_allocation(*ours, place)
                try:
                    for _ in range(3):
                        result = train(model, x)
                    said = "the same" if torch.equal(result, plain) else "something else"
                except RuntimeError as error:
                    said = str(error)
                preloaded.fail_allocation(0, 0, -1)
                tool.stop()
            calls = [record["op"] for record in other.records()].count("aten::addmm")
            print(f"{name};{place};{core.failure};{calls};{said}", flush=True)
    assert _C.dump_dispatcher() == before
    assert _C.idle() and _C.tap_count() == 0
    print("done")


main(sys.argv[1], sys.argv[2:])
