# SPDX-License-Identifier: Apache-2.0
"""Runs of a user's script in processes of their own, with tools; `run_script.py` is the other end."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

from op_tools.core.progress import Working

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)\b")
NO_TOOL = "none"


@dataclass
class Outcome:
    """What a run came to: its exit code, the numbers it printed, what was watched."""

    code: int
    numbers: list[float]
    folder: str | None  # of the capture
    devices: list[str] | None  # watched; None where the tools were not started
    errors: str
    bits: list[list] = field(default_factory=list)  # of step_bits.py
    steps: int = 0
    seconds: float = 0.0
    gradients: list[dict[str, str]] = field(default_factory=list)  # rows of OpGradCheck

    def agrees(self, other: Outcome, rtol: float) -> bool:
        if self.code != other.code or len(self.numbers) != len(other.numbers):
            return False
        return all(
            a == b or math.isclose(a, b, rel_tol=rtol) or (a != a and b != b)
            for a, b in zip(self.numbers, other.numbers)
        )

    @property
    def last_words(self) -> str:
        # The plugin's logger ends with a line of its own, which says nothing about the error.
        lines = [x for x in self.errors.splitlines() if x.strip() and not x.startswith("[ERROR]")]
        return (lines or ["it said nothing"])[-1]

    @property
    def is_finite(self) -> bool:
        return all(map(math.isfinite, self.numbers))


class RunError(RuntimeError):
    """A run ended before it could tell anything."""


def run(
    script: str, arguments: list[str], tools: str, *, bits: bool = False, **variables: str
) -> Outcome:
    """The script with the tools named (OpCapture, or several with a + between them, or none): from
    the first call of a module on, or from the beginning where it calls none."""
    outcome = _run(script, arguments, tools, "modules", bits, variables)
    if outcome.devices is None:
        outcome = _run(script, arguments, tools, "now", bits, variables)
    return outcome


def environment(variables: dict[str, str]) -> dict[str, str]:
    """The user's, without what would make the tools do something else than they are run for."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OP_FALLBACK_")}
    kept.pop("OP_TOOLS_VERBOSE", None)
    kept.update(OP_CAPTURE_FORMAT="native", OP_CAPTURE_CONTENT="full", **variables)
    if "OP_CAPTURE_DIR" in kept:  # the script may change its folder before it is made
        kept["OP_CAPTURE_DIR"] = os.path.abspath(kept["OP_CAPTURE_DIR"])
    return kept


def _run(
    script: str, arguments: list[str], tools: str, when: str, bits: bool, variables: dict
) -> Outcome:
    with tempfile.TemporaryDirectory() as scratch:
        told = os.path.join(scratch, "told.json")
        command = [sys.executable, "-m", "op_tools.runs.run_script", tools, when]
        command += ["bits" if bits else "-", told, script, *arguments]
        with Working(f"running {os.path.basename(script)} with {tools}"):
            done = subprocess.run(
                command, capture_output=True, text=True, env=environment(variables)
            )
        outcome = Outcome(done.returncode, [], None, None, done.stderr)
        if done.returncode != 0 or not os.path.exists(told):
            raise RunError(
                f"running {script} failed with code {done.returncode}: {outcome.last_words}"
            )
        with open(told, encoding="utf-8") as file:
            held = json.load(file)
    outcome.numbers = [float(word) for word in _NUMBER.findall(done.stdout)]
    for name, value in held.items():
        setattr(outcome, name, value)
    if outcome.folder is not None:
        near = os.path.relpath(outcome.folder)
        outcome.folder = outcome.folder if near.startswith(os.pardir) else near
    return outcome
