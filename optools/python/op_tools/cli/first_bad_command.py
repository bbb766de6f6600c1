# SPDX-License-Identifier: Apache-2.0
"""op-tools first-bad: runs a script, names the first operator that is wrong, and how to see it.

    op-tools first-bad train.py --reference cpu -- --steps 1
    op-tools first-bad train.py --reference capture DIR

What is compared: every call with a second run on the cpu, or with a capture made elsewhere, and
with float64. Where no call is wrong by itself and the runs still print other numbers, halves of
the operators run on the cpu until one is left. Exit code: 0 nothing wrong, 1 found, 2 wrong use.
"""

from __future__ import annotations

import argparse
import os
import re

from op_tools import captures, reproducer
from op_tools.capture import new_folder
from op_tools.captures import Capture, CaptureError

FOLDER = os.path.join("op_tools_results", "first_bad")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script")
    parser.add_argument("arguments", nargs="*", help="of the script; after -- where they are flags")
    parser.add_argument(
        "--reference",
        nargs="+",
        default=["cpu"],
        metavar="WHAT",
        help="cpu (every operator there), or: capture DIR",
    )
    parser.add_argument("-o", "--out", help="the folder for captures and the reproducer")
    parser.add_argument(
        "--rtol", type=float, default=1e-3, help="of numbers two runs print (1e-3), to bisect"
    )


def run(flags: argparse.Namespace) -> int:
    from op_tools import first_bad

    given = _reference(flags.reference)
    if not os.path.isfile(flags.script):
        raise ValueError(f"{flags.script} is no file")
    if flags.out:
        os.makedirs(flags.out, exist_ok=True)
    folder = flags.out or new_folder(FOLDER)
    try:
        return _Hunt(flags, folder, given).run()
    except first_bad.RunError as error:
        raise ValueError(str(error)) from None


def _reference(words: list[str]) -> Capture | None:
    """None for the cpu."""
    if words == ["cpu"]:
        return None
    if len(words) == 2 and words[0] == "capture":
        return captures.open(words[1])
    raise ValueError(
        f"--reference {' '.join(words)}: expected cpu, or: capture DIR "
        "(the script's own arguments go after --)"
    )


class _Hunt:
    def __init__(self, flags: argparse.Namespace, folder: str, given: Capture | None) -> None:
        self.flags, self.folder, self.given = flags, folder, given

    def run(self) -> int:
        from op_tools import first_bad

        device = self._run("capture", "device")
        if device.code != 0:
            last = (device.errors.strip().splitlines() or [""])[-1]
            print(f"the script ended with code {device.code}: {last}")
        self.on_cpu = device.devices == ["cpu"]
        mine = captures.open(device.folder)
        all_on_cpu = None
        reference = self.given
        if reference is None and not self.on_cpu:
            all_on_cpu = self._run("fallback+capture", "reference")
            reference = captures.open(all_on_cpu.folder)
        result = first_bad.search(mine, reference)
        self._tell_streams(result, reference)
        found = result.found
        if found is None and not self.on_cpu:
            found = self._bisect(mine, device, all_on_cpu)
        if found is None:
            print(f"no operator is wrong: {result.judged} calls judged, captured in {mine.path}")
            return 1 if device.code else 0
        self._tell(found, mine, result.calls)
        return 1

    def _run(self, modes: str, name: str, **variables: str):
        from op_tools import first_bad

        where = os.path.join(self.folder, name)
        return first_bad.run(self.flags.script, self.flags.arguments, modes, where, **variables)

    def _tell_streams(self, result, reference: Capture | None) -> None:
        if reference is None:
            print(f"{result.calls} calls on the cpu, each compared with float64")
            return
        print(
            f"{result.calls} calls, {result.matched} of them matched with {len(reference)} of the "
            "reference's"
        )
        if result.matched * 2 < result.calls:
            print("the two runs are too different to be matched call by call")

    # ---- where streams do not tell -----------------------------------------------
    def _bisect(self, mine: Capture, device, all_on_cpu):
        from op_tools import first_bad

        if all_on_cpu is None:
            all_on_cpu = self._run("fallback", "reference")
        if device.agrees(all_on_cpu, self.flags.rtol):
            return None
        names = list(dict.fromkeys(record.op for record in mine if "::" in record.op))
        print(
            f"no call is wrong by itself, and the runs come to different numbers: trying halves of "
            f"{len(names)} operators on the cpu"
        )

        def is_good(on_cpu: list[str]) -> bool:
            chosen = ",".join(map(re.escape, on_cpu))
            outcome = self._run("fallback", "bisection", OP_FALLBACK_LIST=chosen)
            good = outcome.agrees(all_on_cpu, self.flags.rtol)
            print(f"  {len(on_cpu)} on the cpu: {'good' if good else 'bad'}")
            return good

        name, runs = first_bad.bisect(names, is_good)
        if name is None:
            print(f"after {runs} runs: no single operator explains it")
            return None
        print(f"after {runs} runs: good with {name} on the cpu")
        record = next(record for record in mine if record.op == name)
        return first_bad.judge_one(record)

    # ---- what was found ------------------------------------------------------------
    def _tell(self, found, mine: Capture, calls: int) -> None:
        record, result = found.record, found.result
        print(
            f"first bad: {record.op}, call {record.number} of {calls}, {record.phase}, "
            f"step {record.step}"
        )
        e = "" if found.e is None else f" (E {found.e:.4g})"
        print(f"  {found.why}{e}")
        if result is not None and result["worst"] is not None:
            place = ", ".join(map(str, result["worst"]))
            print(f"  {result['result']}[{place}] is {result['got']}, float64 {result['expected']}")
        for name, value in (
            ("module", record.module),
            ("at", record.site),
            ("inputs", found.inputs),
            ("capture", mine.path),
        ):
            if value:
                print(f"  {name}: {value}")
        # Beside the capture it is of: `op-tools report` finds it there.
        folder = os.path.join(os.path.dirname(mine.path), reproducer.folder_name(record))
        try:
            print(f"  reproducer: {reproducer.write(record, folder, found.why)}")
        except CaptureError as error:
            print(f"  no reproducer: {error}")
