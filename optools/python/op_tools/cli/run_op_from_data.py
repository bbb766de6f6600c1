# SPDX-License-Identifier: Apache-2.0
"""Runs captured calls again and compares them with what was captured.

    python -m op_tools.run_op_from_data DIR [--run_times N] [--acc_check] [--sync_time_measure]

Every ditorch folder and every capture at or below DIR is run, on the accelerator or the cpu, in a
process of their own: a case that crashes it is told, and the others are run. The exit code is 0
when all agree, 1 when one differs or cannot be run, 2 when there is nothing to run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial

from op_tools import captures
from op_tools.core import __version__, kind_and_line, options, quiet, untrusted_worker, usable
from op_tools.core.printing import spelled_output
from op_tools.core.tables import dict_data_list_to_table
from op_tools.ditorch_compat import ditorch_folders
from op_tools.ditorch_compat.ditorch_folders import Case
from op_tools.ditorch_compat.op_runner import (
    OpAccyChecker,
    OpRunner,
    OpRunnerHook,
    SyncExecuteTimer,
    default_device,
)
from op_tools.tools import registry

_MEANINGLESS = ("aten::empty", "aten::new_empty", "aten::resize", "aten::set_")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Where and what to run again; `op-tools replay` has them too."""
    parser.add_argument("--device", help="where to run (default: the accelerator, else the cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of random operators (0)")
    parser.add_argument(
        "--allow",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="call functions of this package too, not only PyTorch's",
    )
    untrusted_worker.add_flags(parser)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="run_op_from_data", description="Runs captured calls again."
    )
    parser.add_argument("--version", action="version", version=f"op_tools {__version__}")
    parser.add_argument("dir", help="walked recursively")
    parser.add_argument("--run_times", type=int, default=100, help="runs of each case (100)")
    parser.add_argument("--only_run_forward", action="store_true", help="no backward")
    parser.add_argument("--sync_time_measure", action="store_true", help="time each run")
    parser.add_argument("--acc_check", action="store_true", help="compare with the cpu")
    add_flags(parser)
    parsed = parser.parse_args(arguments)
    if parsed.run_times < 1:
        parser.error("--run_times: expected 1 or more")
    if parsed.device:
        try:
            usable(parsed.device)
        except RuntimeError as error:
            parser.error(f"--device {parsed.device}: {error}")
    return parsed


def _record_case(folder: str, record: captures.Record, device: str) -> Case:
    args, kwargs = record.load(named=device)
    case = Case(f"{folder}#{record.number}", record.op, tuple(args), dict(kwargs))
    refs = [ref for _, ref in captures.leaves(record.outputs, "")]
    if not any(ref.reason for ref in refs) and record.has_contents:  # else nothing to compare with
        try:
            case.output = tuple(record.load_outputs())
        except captures.CaptureError as error:
            case.problems.append(str(error))
    case.after = captures.load(record.after)
    if record.grad_outputs is not None:  # a capture imported from ditorch's folders
        case.grad_outputs = tuple(captures.load(record.grad_outputs))
    if record.grad_inputs is not None:
        case.grad_inputs = tuple(captures.load(record.grad_inputs))
        case.of_arguments = record.of_arguments
    case.on_cpu = record.on_cpu
    case.random = record.rng is not None or record.op.startswith(_MEANINGLESS)
    return case


def _unread(why: str) -> Case:
    raise captures.CaptureError(why)


def _places(path: str, device: str) -> Iterator[tuple[str, str, Callable[[], Case]]]:
    """(where, its operator as far as that is known before it is read, what reads it)."""
    for folder in ditorch_folders.find(path):
        yield folder, "", partial(ditorch_folders.load, folder)
    for folder in captures.find(path):
        try:
            capture = captures.open(folder)
        except captures.CaptureError as error:
            yield folder, "", partial(_unread, str(error))
            continue
        for record in capture:
            if record.raised is None:
                where = f"{folder}#{record.number}"
                yield where, record.op, partial(_record_case, folder, record, device)
        for problem in capture.problems:
            yield folder, "", partial(_unread, problem)


def _read(read: Callable[[], Case]) -> tuple[Case | None, str]:
    try:
        with quiet():
            return read(), ""
    except captures.CaptureError as error:
        return None, str(error)


def cases(path: str, device: str) -> Iterator[tuple[str, Case | None, str]]:
    """(where, case, or None and why it cannot be read). Tensors are on the cpu; devices among
    captured arguments are the device they are to run on."""
    for where, _, read in _places(path, device):
        yield where, *_read(read)


def walking(
    path: str, device: str, run: Callable[[str, Case], dict], wanted: Callable[[str], bool]
) -> Callable[[dict, Callable[[dict], None]], dict | None]:
    """What answers untrusted_worker.walk(): the next case from a place on, run, where its name is wanted."""
    places = enumerate(_places(path, device))

    def answer(request: dict, begin: Callable[[dict], None]) -> dict | None:
        for at, (where, name, read) in places:
            if at < request["at"]:
                continue
            told = {"at": at, "where": where, "name": name}
            begin(told)
            case, told["why"] = _read(read)
            if not wanted(case.name if case else ""):
                continue
            if case is not None:
                told["name"] = case.name
                begin(told)
                told.update(run(where, case))
            return told
        return None

    return answer


def _hook(flags: argparse.Namespace) -> OpRunnerHook:
    if options.verbose():
        return OpRunnerHook()  # tools around the whole run speak
    if flags.acc_check:
        return OpAccyChecker()
    return SyncExecuteTimer(flags.only_run_forward) if flags.sync_time_measure else OpRunnerHook()


def _said(info: dict | None) -> str:
    if info is None:
        return "-"
    return "same" if info["allclose"] else "DIFFERS"


def run_case(where: str, case: Case, flags: argparse.Namespace) -> dict:
    """A row of the summary; whatever the case raises becomes a part of it."""
    print(f"dir: {where}")
    for problem in case.problems:
        print(problem)
    row = {"case": where, "name": case.name, "forward": "-", "backward": "-"}
    row.update(max_abs_diff="-", allclose="-", note="; ".join(case.problems))
    try:
        hook = _hook(flags)
        runner = OpRunner(where, hook, flags.device, flags.allow, flags.seed, case)
        backward = None
        for _ in range(flags.run_times):
            runner.run_forward()
            if not flags.only_run_forward and runner.has_backward:
                runner.run_backward()
                backward = True
        forward = runner.check_forward()
        backward = runner.check_backward() if backward else None
    except Exception as error:  # one bad case does not stop the walk
        row.update(allclose=False, note=kind_and_line(error)[:120])
        return row
    found = [info for info in (forward, backward) if info is not None]
    row["forward"], row["backward"] = _said(forward), _said(backward)
    notes = [row["note"], *(info["error_info"] for info in found)]
    if runner.is_random:
        notes.append("random: values not compared")
    if getattr(hook, "bad", 0):
        notes.append("differs from the cpu")
    if found:
        row["max_abs_diff"] = f"{max(info['max_abs_diff'] for info in found):.9f}"
    row["allclose"] = all(info["allclose"] for info in found) and not getattr(hook, "bad", 0)
    row["note"] = "; ".join(note for note in notes if note)
    return row


@contextlib.contextmanager
def _tools(flags: argparse.Namespace) -> Iterator[list]:
    """OP_TOOLS_VERBOSE: the tools themselves, with their lines and files."""
    tools = []
    if options.verbose():
        tools += [registry.OpTimeMeasure()] if flags.sync_time_measure else []
        tools += [registry.OpAutoCompare()] if flags.acc_check else []
    with contextlib.ExitStack() as stack:
        for tool in tools:
            stack.enter_context(tool)
        yield tools


@contextlib.contextmanager
def work(settings: dict) -> Iterator[Callable]:
    """In the process that runs the cases: core/untrusted_worker.py."""
    flags = argparse.Namespace(**settings)
    usable(flags.device)
    with _tools(flags):
        yield walking(
            flags.dir,
            flags.device,
            lambda where, case: {"row": run_case(where, case, flags)},
            lambda name: True,
        )


def _row(reply: dict) -> dict:
    """Of the summary."""
    if "row" in reply:
        return reply["row"]
    why = reply.get("died") or reply["why"]
    name = reply["name"] if "died" in reply else ""
    print(f"{reply['where']}: {why}" if "died" in reply else why)
    return {"case": reply["where"], "name": name or "-", "allclose": False, "note": why[:120]}


def main(arguments: list[str] | None = None) -> int:
    with spelled_output():
        return _main(arguments)


def _main(arguments: list[str] | None) -> int:
    flags = parse(arguments)
    if not os.path.isdir(flags.dir):
        print(f"run_op_from_data: {flags.dir} is no folder", file=sys.stderr)
        return 2
    flags.device = flags.device or default_device()
    with untrusted_worker.worker("run", vars(flags), flags) as worker:
        rows = [_row(reply) for reply in untrusted_worker.walk(worker)]
    if not rows:
        print(f"run_op_from_data: no input.pth and no capture below {flags.dir}", file=sys.stderr)
        return 2
    bad = sum(row["allclose"] is False for row in rows)
    columns = "case name forward backward max_abs_diff allclose note".split()
    for row in rows:
        row["case"] = os.path.relpath(row["case"], flags.dir)
    print(dict_data_list_to_table([{key: row.get(key, "-") for key in columns} for row in rows]))
    print(f"{len(rows)} cases, {len(rows) - bad} agree, {bad} differ or could not be run")
    return 1 if bad else 0
