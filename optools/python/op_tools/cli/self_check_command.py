# SPDX-License-Identifier: Apache-2.0
"""op-tools self-check: does a tool change what it watches, and what does it cost?

    op-tools self-check train.py                       every tool
    op-tools self-check train.py --tool OpCapture -- --steps 3

The script runs twice without a tool, which has to give the same bits, and once with each: results
of its models, losses, gradients and changed parameters are compared bit by bit. OpFallback and
OpDtypeCast are there to change results: they run with no operator selected. Exit code: 0 all
bits equal, 1 not, 2 wrong use or nothing to compare.
"""

from __future__ import annotations

import argparse
import os
import tempfile

from op_tools.core.printing import many
from op_tools.runs import script_runs
from op_tools.runs.script_runs import NO_TOOL, Outcome
from op_tools.tools import registry

# Tool -> variables it runs with.
TOOLS: dict[str, dict[str, str]] = {
    tool.__name__: {f"OP_{tool.family}_DISABLE_LIST": ".*::.*"} if tool.changes_results else {}
    for tool in registry.TOOLS
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script")
    parser.add_argument("arguments", nargs="*", help="of the script; after -- where they are flags")
    parser.add_argument(
        "--tool", default="all", help=f"all (the default), or one of {registry.names()}"
    )


def run(flags: argparse.Namespace) -> int:
    if flags.tool not in ("all", *TOOLS):
        raise ValueError(f"--tool {flags.tool}: expected all, or one of {registry.names()}")
    if not os.path.isfile(flags.script):
        raise ValueError(f"{flags.script} is no file")
    with tempfile.TemporaryDirectory() as scratch:
        try:
            return _check(flags, scratch)
        except script_runs.RunError as error:
            raise ValueError(str(error)) from None


def _check(flags: argparse.Namespace, scratch: str) -> int:
    def one(tool: str, **variables: str) -> Outcome:
        variables["OP_CAPTURE_DIR"] = scratch
        return script_runs.run(flags.script, flags.arguments, tool, bits=True, **variables)

    plain, again = one(NO_TOOL), one(NO_TOOL)
    if plain.code:
        raise ValueError(f"the script ended with code {plain.code}: {plain.last_words}")
    if not plain.bits:
        raise ValueError("the script calls no module and no backward(): nothing to compare")
    found = difference(plain, again)
    if found:
        print(f"without a tool the script gives another result the second time: {found}")
        return 1
    seconds = min(plain.seconds, again.seconds)
    names = list(TOOLS) if flags.tool == "all" else [flags.tool]
    bad = [name for name in names if not _tell(name, plain, one(name, **TOOLS[name]), seconds)]
    print(f"{len(names) - len(bad)} of {len(names)} tools change nothing")
    return 1 if bad else 0


def _tell(name: str, plain: Outcome, watched: Outcome, seconds: float) -> bool:
    """Prints a tool's line; are all bits equal?"""
    selected = " (no operator selected)" if TOOLS[name] else ""
    found = difference(plain, watched)
    if found:
        print(f"{name}{selected} changes the results of the program: {found}")
        return False
    steps, unit = (plain.steps, "a step") if plain.steps else (1, "the run")
    before, after = (1e3 * value / steps for value in (seconds, watched.seconds))
    ratio = after / before if before else float("inf")
    print(
        f"{name}{selected}: {many(len(plain.bits), 'tensor')} bit-equal with and without it; {unit} takes "
        f"{after:.2f} ms instead of {before:.2f} ({ratio:.2f}x)"
    )
    return True


def difference(plain: Outcome, other: Outcome) -> str:
    """The first thing that is not the same; empty where all is."""
    if other.code != plain.code:
        return f"the script ended with code {other.code}: {other.last_words}"
    for one, two in zip(plain.bits, other.bits):
        if one != two:
            return f"{one[0]}, {one[1]} {one[2]}" + (f" and {two[0]}" if one[0] != two[0] else "")
    if len(plain.bits) != len(other.bits):
        return f"{many(len(other.bits), 'tensor')} instead of {len(plain.bits)}"
    return ""
