# SPDX-License-Identifier: Apache-2.0
"""op-tools import: ditorch's folders -> a capture. Files that hold code are refused.

Files are read in a process of their own, with a limit of time for each and one of memory: what is
over it, or crashes the reader, is told, and the others are imported.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator

from op_tools.captures import CaptureError
from op_tools.cli.common import count
from op_tools.core import _C, first_line, untrusted_worker
from op_tools.core.capture_format import head, new_folder
from op_tools.core.printing import many
from op_tools.ditorch_compat import ditorch_folders
from op_tools.ditorch_compat.ditorch_folders import Case, CaseError

MIB = 1 << 20
MOST_DEATHS = 20


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", help="walked for input.pth files")
    parser.add_argument("--out", help="the capture's folder (default: a new one)")
    parser.add_argument(
        "--memory",
        type=count,
        default=_half_of_memory() // MIB,
        metavar="MB",
        help="refuse a file that takes more memory to read (half of this machine's; 0: no limit)",
    )
    untrusted_worker.add_flags(parser)


def _half_of_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def run(flags: argparse.Namespace) -> int:
    found = sorted(ditorch_folders.find(flags.folders), key=_order)
    if not found:
        raise CaptureError(f"no input.pth at or below {flags.folders}")
    if flags.out:
        os.makedirs(flags.out)
    folder = flags.out or new_folder()
    died: dict[str, str] = {}
    while True:
        try:
            done, problems = _import(found, folder, died, flags)
            break
        except _CaseDied as error:  # what was written ends there: again, without that one
            died[error.path] = str(error)
            if len(died) > MOST_DEATHS:
                raise CaptureError(
                    f"{len(died)} cases ended their reader, one of them: {error}"
                ) from None
            shutil.rmtree(folder)
            os.makedirs(folder)
    for _, texts in sorted([*problems.items(), *((path, [why]) for path, why in died.items())]):
        for text in texts:
            print(text, file=sys.stderr)
    bad = len(problems) + len(died)
    print(f"{folder}: {many(done, 'call')}, {many(bad, 'case')} with problems")
    return 1 if bad else 0


class _CaseDied(Exception):
    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


def _import(
    found: list[str], folder: str, died: dict[str, str], flags: argparse.Namespace
) -> tuple[int, dict[str, list[str]]]:
    """(calls imported, problems by case)."""
    done, problems = 0, {}
    settings = {"folder": folder, "memory": flags.memory * MIB}
    with untrusted_worker.worker("import", settings, flags) as worker:
        for path in found:
            if path in died:
                continue
            try:
                reply = worker.ask({"case": path})
            except untrusted_worker.Died as error:
                raise _CaseDied(path, str(error)) from None
            done += reply["read"]
            if reply["problems"]:
                problems[path] = reply["problems"]
        why = worker.ask({"case": None})["why"]
    if why:
        raise OSError(why)
    return done, problems


@contextlib.contextmanager
def work(settings: dict) -> Iterator[Callable]:
    """In the process that reads the files: untrusted_worker.py."""
    writer = _C.CaptureWriter(settings["folder"], head(content="full", source="ditorch"))
    numbers: dict[str, int] = {}
    done = 0

    def answer(request: dict, begin: Callable) -> dict:
        nonlocal done
        if request["case"] is None:
            writer.close()
            return {"why": writer.why_closed}
        try:
            with _memory(settings["memory"]):
                case = ditorch_folders.load(request["case"])
            if case.name not in numbers:
                writer.define("op", len(numbers) + 1, case.name, "")
                numbers[case.name] = len(numbers) + 1
            writer.add(_record(case, done + 1, numbers[case.name]))
        except CaseError as error:
            return {"read": 0, "problems": [str(error)]}
        except (ValueError, RuntimeError, MemoryError) as error:
            return {"read": 0, "problems": [f"{request['case']}: {first_line(error)}"]}
        done += 1
        return {"read": 1, "problems": case.problems}

    yield answer


@contextlib.contextmanager
def _memory(most: int) -> Iterator[None]:
    """No more of it for this process meanwhile."""
    if not most:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        limit = int(file.read().split()[0]) * resource.getpagesize() + most
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _order(path: str) -> tuple:
    """By the call's number, which is a part of the path."""
    numbers = [int(part) for part in path.split(os.sep) if part.isdecimal() and len(part) < 20]
    return (numbers[-1] if numbers else 0, path)


def _record(case: Case, number: int, op: int) -> dict:
    record = {"number": number, "op": op, "phase": 0, "args": list(case.args)}
    if case.kwargs:
        record["kwargs"] = dict(case.kwargs)
    record["out"] = list(case.output or ())
    if case.grad_inputs is not None:
        record["grad_inputs"] = list(case.grad_inputs)
        record["of_arguments"] = case.of_arguments
    if case.grad_outputs is not None:
        record["grad_outputs"] = list(case.grad_outputs)
    return record
