# SPDX-License-Identifier: Apache-2.0
"""`opennpu profile`: what costs time in a recorded profile, where in the program, and what to do."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from opennpu import words


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "path",
        help="a folder *_ascend_pt, a folder that holds some, or a trace of torch.profiler (.json)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def run(options: argparse.Namespace) -> int:
    from torch_npu.profiler import advice
    from torch_npu.profiler.folder import TRACE, FolderError, profiles_in
    from torch_npu.profiler.trace import Trace

    path = Path(options.path)
    try:
        traces = [path] if path.is_file() else [found / TRACE for found in profiles_in(path)]
        found = {str(trace): advice.of(Trace(trace)) for trace in traces}
    except (FolderError, RuntimeError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = (
            error if isinstance(error, RuntimeError) else f"{path}: this is no trace of a profiler"
        )
        print(f"opennpu profile: {why}", file=sys.stderr)
        return 2
    if options.json:
        print(
            json.dumps(
                [{"trace": name, **each.as_dict()} for name, each in found.items()], indent=2
            )
        )
        return 0
    width = words.width() or 100
    for number, (name, each) in enumerate(found.items()):
        if number:
            print()
        print("\n".join(words.folded(name, width)))
        print("\n".join(advice.lines(each, words.language(), width)))
    return 0
