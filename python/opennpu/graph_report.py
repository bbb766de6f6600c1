# SPDX-License-Identifier: Apache-2.0
"""`opennpu graph-report script.py`: what of a script's compiled graphs the engine takes."""

from __future__ import annotations

import argparse
import runpy
import sys
from pathlib import Path

FORMS = ("md", "json", "csv", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMS, default="md", help="default: md")
    parser.add_argument("--language", choices=("en", "zh"), default="en", help="of md and html")
    parser.add_argument("--output", metavar="FILE", help="default: standard output")
    parser.add_argument(
        "--min-coverage", type=float, default=0.0, metavar="SHARE",
        help="exit code 1 when a smaller share of calls (0 to 1) goes into graphs",
    )  # fmt: skip
    parser.add_argument("script", help="a Python script that compiles with torchair's backend")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the script")


def run(options: argparse.Namespace) -> int:
    script = Path(options.script)
    if not script.is_file():
        print(f"opennpu graph-report: no file at {script}", file=sys.stderr)
        return 2
    import torchair
    from torchair import _compiler, _explain

    watch = _explain.Watch()
    _compiler.observers.append(watch)
    before, sys.argv = sys.argv, [str(script), *options.arguments]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0):
            print(f"opennpu graph-report: the script ended with {end.code!r}", file=sys.stderr)
    finally:
        sys.argv = before
        _compiler.observers.remove(watch)
    report = _explain.report_of(watch.graphs, _explain.breaks_seen())
    text = {
        "md": lambda: report.to_markdown(options.language),
        "html": lambda: report.to_html(options.language),
        "json": report.to_json,
        "csv": report.to_csv,
    }[options.format]()
    if options.output:
        Path(options.output).write_text(text, encoding="utf-8", newline="")
    else:
        print(text, end="")
    if not watch.graphs:
        print(
            "opennpu graph-report: the script compiled no graph with torchair.get_npu_backend() or "
            f'backend="npu" ({torchair.__name__})',
            file=sys.stderr,
        )
        return 2
    return int(report.coverage() < options.min_coverage)
