# SPDX-License-Identifier: Apache-2.0
"""The `opennpu` command: one subcommand per module, loaded only when asked for."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from importlib import import_module
from importlib.metadata import version

from opennpu import words

# name -> (module, help). Each module has add_arguments(parser) and run(options) -> exit code.
COMMANDS = {
    "doctor": ("opennpu.doctor", "check torch, driver, devices, autoload, variables, one operator"),
    "ops": ("opennpu.ops", "which operators reach the driver, by which kind, on which rung"),
    "driver": ("opennpu.driver", "begin a driver of your own, and test it"),
    "pack": ("opennpu.pack", "begin an operator pack of your own, build it, check it"),
    "conformance": ("opennpu.conformance", "the same as `driver check`"),
    "graph-report": (
        "opennpu.graph_report",
        "run a script and report which calls its compiled graphs hold",
    ),
    "profile": (
        "opennpu.profile_advice",
        "find the lines that cost time in a recorded profile",
    ),
    "top": ("opennpu.top", "devices, memory and processes, live"),
    "explain": ("opennpu.explain", "explain an error code or an operator's fallback"),
}


# Those whose lines are of others, or which draw their own.
NOT_FITTED = ("graph-report", "top")


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(
        prog="opennpu", description="OpenNPU: an npu device for PyTorch on any hardware."
    )
    root.add_argument("--version", action="version", version=f"opennpu {version('opennpu')}")
    root.add_argument(
        "--lang", choices=words.LANGUAGES, help="default: that of LC_ALL, LC_MESSAGES or LANG"
    )
    commands = root.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(module=module)
        import_module(module).add_arguments(sub)
        _add_common(sub)
    return root


def _add_common(command: argparse.ArgumentParser) -> None:
    """What may stand before a command may stand after it too."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                _add_common(below)
    command.add_argument(
        "--version", action="version", version=f"opennpu {version('opennpu')}",
        help=argparse.SUPPRESS,
    )  # fmt: skip
    if "--lang" not in command._option_string_actions:
        command.add_argument(
            "--lang", choices=words.LANGUAGES, default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def main(arguments: list[str] | None = None) -> int:
    words.never_fail()
    given = list(sys.argv[1:] if arguments is None else arguments)
    # argparse drops the -- that keeps a script's options apart from graph-report's.
    at = given.index("--") if "graph-report" in given and "--" in given else len(given)
    options = parser().parse_args(given[:at])
    options.after = given[at + 1 :]
    words.choose(options.lang)
    as_is = options.command in NOT_FITTED or getattr(options, "json", False)
    try:
        with contextlib.nullcontext() if as_is else words.fitted_output():
            return import_module(options.module).run(options)
    except BrokenPipeError:  # `opennpu … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
