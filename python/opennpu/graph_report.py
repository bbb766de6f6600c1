# SPDX-License-Identifier: Apache-2.0
"""`opennpu graph-report script.py`: what of a script's compiled graphs the engine takes."""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

from opennpu import words
from opennpu.progress import Working

FORMS = ("md", "json", "csv", "html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_own(parser)
    parser.add_argument("script", help="a Python script that compiles with torchair's backend")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER,
        help="of the script; options of this command are taken out of them, but not after --",
    )  # fmt: skip


def _add_own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMS, default="md", help="default: md")
    parser.add_argument("--language", choices=("en", "zh"), help="of md and html")
    parser.add_argument("--output", metavar="FILE", help="default: standard output")
    parser.add_argument(
        "--min-coverage", type=_share, default=0.0, metavar="SHARE",
        help="exit code 1 when a smaller share of calls (0 to 1) goes into graphs",
    )  # fmt: skip


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to 1 (0.99 for 99 %)")
    return value


def _split(options: argparse.Namespace) -> list[str]:
    """The script's arguments; options of this command among them are put into `options`."""
    own = argparse.ArgumentParser(prog="opennpu graph-report", add_help=False, allow_abbrev=False)
    _add_own(own)
    own.add_argument("--lang", choices=words.LANGUAGES)
    own.set_defaults(**{k: v for k, v in vars(options).items() if k not in ("script", "arguments")})
    found, rest = own.parse_known_args(options.arguments)
    vars(options).update(vars(found))
    words.choose(options.lang)
    return rest + options.after


@contextlib.contextmanager
def _to_stderr() -> Iterator[None]:
    """Captures output printed inside, also by native code and child processes."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def run(options: argparse.Namespace) -> int:
    script = Path(options.script)
    if not script.is_file():
        print(f"opennpu graph-report: no file at {script}", file=sys.stderr)
        return 2
    arguments = _split(options)
    folder = Path(options.output or ".").absolute().parent
    if not os.access(folder, os.W_OK):
        print(f"opennpu graph-report: --output: cannot write into {folder}", file=sys.stderr)
        return 2
    import torchair
    from torchair import _compiler, _explain

    watch, failed = _explain.Watch(), False
    _compiler.observers.append(watch)
    before, sys.argv = sys.argv, [str(script), *arguments]
    path = list(sys.path)
    sys.path.insert(0, str(script.absolute().parent))  # as `python script.py` has it
    # The report is all there is on standard output where a program reads it.
    alone = options.format != "md" and not options.output
    try:
        with _to_stderr() if alone else contextlib.nullcontext():
            runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        failed = end.code not in (None, 0)
        if failed:
            print(f"opennpu graph-report: the script ended with {end.code!r}", file=sys.stderr)
    finally:
        sys.argv = before
        sys.path[:] = path  # the script may have changed it
        _compiler.observers.remove(watch)
    with Working("trying every call of the graphs"):
        report = _explain.report_of(watch.graphs, _explain.breaks_seen())
    language = options.language or words.language()
    text = {
        "md": lambda: report.to_markdown(language),
        "html": lambda: report.to_html(language),
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
    if report.coverage() < options.min_coverage:
        print(
            f"opennpu graph-report: {report.coverage():.1%} of the calls go into graphs, "
            f"--min-coverage asks for {options.min_coverage:.1%}",
            file=sys.stderr,
        )
        return 1
    return int(failed)
