# SPDX-License-Identifier: Apache-2.0
"""op-tools report: a capture as one HTML file, to be opened in any browser, offline.

Times are the capture's own, or those of OpTimeMeasure where it saved its results (time.json) in
the folder; verdicts are OpAutoCompare's (compare.json), or with --judge those of the captured
results against float64 on the cpu. The exit code is 1 when a part of the capture could not be read
or a verdict is `error`; the report is written all the same.
"""

from __future__ import annotations

import argparse
import os
import sys

from op_tools.cli.common import count
from op_tools.core import untrusted_worker
from op_tools.core.files import write_whole
from op_tools.core.printing import many

MIB = 1 << 20


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", help="a capture, with results of other tools where there are any")
    parser.add_argument("-o", "--out", help="the file to write (FOLDER/report.html)")
    parser.add_argument("--judge", action="store_true", help="judge every captured result")
    parser.add_argument(
        "--values",
        type=count,
        default=4096,
        metavar="MB",
        help="read at most this much of the tensors, for exponent histograms (4096; 0: none)",
    )
    parser.add_argument(
        "--reproducers",
        type=count,
        default=0,
        metavar="N",
        help="write a reproducer of each of the N worst calls, beside the file (0)",
    )
    parser.add_argument(
        "--against",
        default="",
        metavar="FOLDER",
        help="another run's capture or results: times, E and losses of both side by side",
    )
    untrusted_worker.add_flags(parser)


def run(flags: argparse.Namespace) -> int:
    from op_tools import report
    from op_tools.captures import judging
    from op_tools.core.language import language
    from op_tools.report.gathering import verdict_counts

    out = flags.out or os.path.join(flags.folder, "report.html")
    to = os.path.dirname(os.path.abspath(out))
    if os.path.isdir(flags.folder) and not os.path.isdir(to):
        raise ValueError(f"-o {out}: there is no folder {to}")
    options = report.Options(
        flags.judge, flags.values * MIB, flags.reproducers, to, flags.against, language()
    )
    # The process is not started where nothing is judged.
    with untrusted_worker.worker("judge", {}, flags) as worker:
        options.judged_by = judging.judged_by(worker)
        data = report.gather(flags.folder, options)
    write_whole(out, report.render(data), follow=flags.out is not None)
    for problem in data["problems"]:
        print(problem, file=sys.stderr)
    counts = verdict_counts(data)
    said = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    size = os.path.getsize(out) / MIB
    print(
        f"{out}: {many(len(data['calls']['number']), 'call')}, {said or 'not judged'}, "
        f"{many(len(data['links']), 'reproducer')}, {size:.1f} MiB"
    )
    return 1 if data["problems"] or counts.get("error") else 0
