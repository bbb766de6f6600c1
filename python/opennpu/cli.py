# SPDX-License-Identifier: Apache-2.0
"""The `opennpu` command: one subcommand per module, loaded only when asked for."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

# name -> (module, help). Each module has add_arguments(parser) and run(options) -> exit code.
COMMANDS = {
    "doctor": ("opennpu.doctor", "check torch, driver, devices, autoload, variables, one operator"),
    "ops": ("opennpu.ops", "which operators reach the driver, by which kind, on which rung"),
    "driver": ("opennpu.driver", "begin a driver of your own, and test it"),
    "pack": ("opennpu.pack", "begin an operator pack of your own, build it, check it"),
    "conformance": ("opennpu.conformance", "the same as `driver check`"),
    "graph-report": (
        "opennpu.graph_report",
        "run a script and say what of its compiled graphs stays inside of them",
    ),
    "top": ("opennpu.top", "devices, memory and processes, live"),
    "explain": ("opennpu.explain", "what an error code or an operator's fallback means"),
}


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="opennpu", description="OpenNPU: an npu device for PyTorch on any hardware."
    )
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(module=module)
        import_module(module).add_arguments(sub)
    return root


def main(arguments: list[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        return import_module(options.module).run(options)
    except BrokenPipeError:  # `opennpu … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
