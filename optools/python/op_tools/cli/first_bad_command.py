# SPDX-License-Identifier: Apache-2.0
"""op-tools first-bad: runs a script, names the first operator that is wrong, and how to see it.

    op-tools first-bad train.py --reference cpu -- --steps 1
    op-tools first-bad train.py --reference capture DIR
    op-tools first-bad train.py --gradients

What is compared: every call with a second run on the cpu, or with a capture made elsewhere, and
with float64. Where no call is wrong by itself and the runs still print other numbers, parts of the
operators run on the cpu until those are known that make the difference. Where the script prints a
number that is not finite, the first call that made one is named. With --gradients the backward of
every autograd function of the script is checked instead (OpGradCheck). Exit code: 0 nothing wrong, 1
found, 2 wrong use, or no call was seen.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable

from op_tools import captures
from op_tools.captures import Capture, CaptureError, Record, judging, reproducer
from op_tools.cli.common import tell_fields
from op_tools.core import untrusted_worker
from op_tools.core.capture_format import new_folder
from op_tools.core.printing import many
from op_tools.runs import first_bad, script_runs
from op_tools.runs.bisecting import Bisection, bisect
from op_tools.runs.script_runs import Outcome
from op_tools.tools.grad_check import IMPRECISE, UNJUDGED, WRONG, OpGradCheck

CAPTURE = "capture "
FOLDER = os.path.join("op_tools_results", "first_bad")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script")
    parser.add_argument("arguments", nargs="*", help="of the script; after -- where they are flags")
    parser.add_argument(
        "--reference",
        default="cpu",
        metavar="cpu|capture DIR",
        help="every operator on the cpu (the default), or a capture made elsewhere",
    )
    parser.add_argument(
        "--gradients", action="store_true", help="check the script's autograd functions instead"
    )
    parser.add_argument("-o", "--out", help="the folder for captures and the reproducer")
    parser.add_argument(
        "--rtol", type=float, default=1e-3, help="of numbers two runs print (1e-3), to bisect"
    )
    untrusted_worker.add_flags(parser)


def joined(words: list[str]) -> list[str]:
    """`--reference capture DIR` as one flag with one value."""
    if "--reference" not in words:
        return words
    at = words.index("--reference") + 1
    if words[at : at + 1] == ["capture"] and at + 1 < len(words):
        return [*words[:at], f"{CAPTURE}{words[at + 1]}", *words[at + 2 :]]
    return words


def run(flags: argparse.Namespace) -> int:
    given = _reference(flags.reference)
    if not os.path.isfile(flags.script):
        raise ValueError(f"{flags.script} is no file")
    if flags.gradients:
        return _gradients(flags)
    if flags.out:
        os.makedirs(flags.out, exist_ok=True)
    folder = flags.out or new_folder(FOLDER)
    try:
        with untrusted_worker.worker("judge", {}, flags) as worker:
            return _Hunt(flags, folder, given, judging.judged_by(worker)).run()
    except script_runs.RunError as error:
        raise ValueError(str(error)) from None


def _gradients(flags: argparse.Namespace) -> int:
    try:
        outcome = script_runs.run(flags.script, flags.arguments, OpGradCheck.__name__)
    except script_runs.RunError as error:
        raise ValueError(str(error)) from None
    if outcome.code != 0:
        print(f"the script ended with code {outcome.code}: {outcome.last_words}")
    rows = outcome.gradients
    if not rows:
        print(
            "no gradient was checked: the script did not call an autograd function that it defines"
        )
        return outcome.code or 2
    bad = [row for row in rows if row["verdict"] in (WRONG, IMPRECISE)]
    for row in [row for row in rows if row["verdict"] == UNJUDGED]:
        print(f"not judged: {row['function']}: {row['what']}")
    if not bad:
        print(f"no gradient is wrong: {many(len(rows), 'gradient')} checked")
        return outcome.code
    first = bad[0]
    print(f"first bad: {first['function']}, gradient of {first['gradient of']}: {first['verdict']}")
    print(f"  {first['what']}")
    tell_fields(("called at", first["called at"]))
    for row in bad[1:]:
        print(f"also: {row['function']}, gradient of {row['gradient of']}: {row['what']}")
    return 1


def _reference(text: str) -> Capture | None:
    """None for the cpu."""
    if text == "cpu":
        return None
    if text.startswith(CAPTURE):
        return captures.open(text.removeprefix(CAPTURE))
    raise ValueError(f"--reference {text}: expected cpu, or: capture DIR")


class _Hunt:
    def __init__(
        self,
        flags: argparse.Namespace,
        folder: str,
        given: Capture | None,
        judge: Callable[[Record], dict],
    ) -> None:
        self.flags, self.folder, self.given, self.judge = flags, folder, given, judge

    def run(self) -> int:
        device = self._run("OpCapture", "device")
        if device.code != 0:
            print(f"the script ended with code {device.code}: {device.last_words}")
        self.on_cpu = device.devices == ["cpu"]
        mine = captures.open(device.folder)
        all_on_cpu = None
        reference = self.given
        if reference is None and not self.on_cpu:
            all_on_cpu = self._run("OpFallback+OpCapture", "reference")
            reference = captures.open(all_on_cpu.folder)
        if len(mine) == 0:
            print("no call was seen: the script ran no operator on the devices that are watched")
            return device.code or 2
        result = first_bad.search(mine, reference, self.judge)
        self._tell_streams(result, reference)
        for record, why in result.died:
            print(f"not judged: {record.op}, call {record.number}: {why}")
        found = result.found
        if found is None and not self.on_cpu:
            found = self._bisect(mine, device, all_on_cpu)
        if found is None and not device.is_finite and self._tell_not_finite(mine):
            return 1
        if found is None:
            print(f"no operator is wrong: {self._how_judged(result)}, captured in {mine.path}")
            if device.code and all_on_cpu is not None and all_on_cpu.code == device.code:
                print(f"the script ends on the cpu as well: {all_on_cpu.last_words}")
            return 1 if device.code or result.died else 0
        self._tell(found, mine, result.calls)
        return 1

    @staticmethod
    def _how_judged(result) -> str:
        if result.judged or result.matched < result.calls:
            return f"{many(result.judged, 'call')} judged"
        return f"{many(result.calls, 'call')} with the same bits as the reference's"

    def _tell_not_finite(self, mine: Capture) -> bool:
        found = first_bad.first_not_finite(mine)
        if found is None:
            return False
        record, what = found
        self._tell(first_bad.Found(record, f"makes {what} of finite operands; float64 makes it too",
                                   None, None, ""), mine, len(mine), "not finite")  # fmt: skip
        return True

    def _run(self, tools: str, name: str, **variables: str) -> Outcome:
        flags = self.flags
        folder = os.path.join(self.folder, name)
        return script_runs.run(
            flags.script, flags.arguments, tools, OP_CAPTURE_DIR=folder, **variables
        )

    def _tell_streams(self, result, reference: Capture | None) -> None:
        if reference is None:
            print(f"{many(result.calls, 'call')} on the cpu, each compared with float64")
            return
        print(
            f"{many(result.calls, 'call')}, {result.matched} of them matched with {len(reference)} of the "
            "reference's"
        )
        if result.matched * 2 < result.calls:
            print("the two runs are too different to be matched call by call")

    # ---- where streams do not tell -----------------------------------------------
    def _bisect(
        self, mine: Capture, device: Outcome, all_on_cpu: Outcome | None
    ) -> first_bad.Found | None:
        if all_on_cpu is None:
            all_on_cpu = self._run("OpFallback", "reference")
        if device.agrees(all_on_cpu, self.flags.rtol):
            return None
        names = list(dict.fromkeys(record.op for record in mine if "::" in record.op))
        print(
            f"no call is wrong by itself, and the runs come to different numbers: trying parts of "
            f"{many(len(names), 'operator')} on the cpu"
        )

        def is_good(on_cpu: list[str]) -> bool:
            chosen = ",".join(map(re.escape, on_cpu))
            outcome = self._run("OpFallback", "bisection", OP_FALLBACK_LIST=chosen)
            good = outcome.agrees(all_on_cpu, self.flags.rtol)
            print(f"  {len(on_cpu)} on the cpu: {'good' if good else 'bad'}")
            return good

        found = bisect(names, is_good)
        self._tell_bisection(found)
        calls = (record for record in mine if record.op in found.culprits)
        first = next(calls, None)
        return None if first is None else first_bad.judge_one(first, self.judge(first))

    def _tell_bisection(self, found: Bisection) -> None:
        if not found.culprits:
            print(f"after {many(found.runs, 'run')}: no set of operators explains it")
            return
        names = ", ".join(found.culprits)
        if found.complete:
            print(f"after {many(found.runs, 'run')}: good with {names} on the cpu")
        else:
            print(
                f"after {many(found.runs, 'run')}: {names} have to be on the cpu, and more; what remains "
                f"is among {many(found.unsearched, 'operator')} that were not looked at"
            )

    # ---- what was found ------------------------------------------------------------
    def _tell(self, found, mine: Capture, calls: int, what: str = "bad") -> None:
        record, result = found.record, found.result
        print(
            f"first {what}: {record.op}, call {record.number} of {calls}, {record.phase}, "
            f"step {record.step}"
        )
        e = "" if found.e is None else f" (E {found.e:.4g})"
        print(f"  {found.why}{e}")
        if result is not None and result["worst"] is not None:
            place = ", ".join(map(str, result["worst"]))
            print(f"  {result['result']}[{place}] is {result['got']}, float64 {result['expected']}")
        tell_fields(
            ("module", record.module),
            ("at", record.site),
            ("inputs", found.inputs),
            ("capture", mine.path),
        )
        # Beside the capture it is of: `op-tools report` finds it there.
        folder = os.path.join(os.path.dirname(mine.path), reproducer.folder_name(record))
        try:
            print(f"  reproducer: {reproducer.write(record, folder, found.why)}")
        except CaptureError as error:
            print(f"  no reproducer: {error}")
