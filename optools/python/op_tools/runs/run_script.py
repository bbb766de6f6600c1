# SPDX-License-Identifier: Apache-2.0
"""A run of a script with tools, in a process of its own; `script_runs.py` starts it.

    python -m op_tools.runs.run_script TOOLS WHEN BITS FILE script.py [arguments]

TOOLS: names such as OpCapture, with a + between them, or none. WHEN: `modules` starts the tools when
the first module is called, which is after the script's imports: kernels that are registered while
a tool runs are not seen by it. `now` starts them at once. BITS: `bits` keeps what the steps gave
(step_bits.py). FILE gets what there is to know about the run, as JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import traceback

import torch
from torch import nn

from op_tools.core import options
from op_tools.runs import script_runs
from op_tools.runs.step_bits import StepBits
from op_tools.tools import registry
from op_tools.tools.grad_check import OpGradCheck


def run(script: str, arguments: list[str]) -> int:
    """The script as if Python had been given it; its exit code."""
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    torch.manual_seed(0)  # the same random numbers in each run, unless the script seeds
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        print(ended.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _tool(name: str) -> registry.OpTool | OpGradCheck:
    return OpGradCheck() if name == OpGradCheck.__name__ else registry.named(name)()


class Tools:
    """Started once, when it is time."""

    def __init__(self, names: str, bits: StepBits | None) -> None:
        names = [] if names == script_runs.NO_TOOL else names.split("+")
        self.tools = [_tool(name) for name in names]
        self.bits = bits
        self.devices: list[str] | None = None  # None: not started

    def start(self) -> None:
        self.devices = options.devices()
        if self.bits is not None:
            self.bits.begin()
        for tool in self.tools:
            tool.start()

    def start_with_a_module(self) -> None:
        plain = nn.Module.__call__

        def call(module: nn.Module, *args: object, **kwargs: object) -> object:
            nn.Module.__call__ = plain
            self.start()
            return plain(module, *args, **kwargs)

        nn.Module.__call__ = call

    def stop(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):  # their lines are not the script's
            for tool in reversed(self.tools):
                tool.stop()
        if self.bits is not None:
            self.bits.end()

    @property
    def folder(self) -> str | None:
        found = (t.folder for t in self.tools if isinstance(t, registry.OpCapture))
        return next(found, None)

    @property
    def gradients(self) -> list[dict[str, str]]:
        checks = (tool for tool in self.tools if isinstance(tool, OpGradCheck))
        return [each.row() for check in checks for each in check.judged]


def main() -> int:
    names, when, bits, path, script, *arguments = sys.argv[1:]
    kept = StepBits() if bits == "bits" else None
    tools = Tools(names, kept)
    if when == "now":
        tools.start()
    else:
        tools.start_with_a_module()
    try:
        code = run(script, arguments)
    finally:
        tools.stop()
    sys.stdout.flush()
    told = {"code": code, "folder": tools.folder, "devices": tools.devices}
    told["gradients"] = tools.gradients
    if kept is not None:
        told.update(bits=kept.bits, steps=kept.steps, seconds=kept.seconds)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(told, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
