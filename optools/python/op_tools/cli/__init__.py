# SPDX-License-Identifier: Apache-2.0
"""op-tools: looks into captures, compares them, runs them again.

    op-tools ls PATH                 captures at or below PATH, or the calls of one
    op-tools show CAPTURE NUMBER     one call, with the values of its tensors
    op-tools diff A B                two captures, call by call
    op-tools replay PATH             every captured call again, compared with what was captured
    op-tools report CAPTURE          one HTML file to look at it with
    op-tools first-bad SCRIPT        the first operator of a run that is wrong
    op-tools self-check SCRIPT       do tools change what they watch, and what do they cost
    op-tools import FOLDERS          ditorch's folders -> a capture
    op-tools export CAPTURE FOLDER   a capture -> ditorch's folders

Exit code: 0 all is well, 1 something differs or could not be read, 2 wrong use.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys

# Each module adds its arguments with add(parser) and works in run(flags) -> exit code. Commands that
# run a script give it what follows a `--`, and words that are no flags, as flags.arguments.
COMMANDS = {
    "ls": "captures, or the calls of one",
    "show": "one call, with its tensors",
    "diff": "two captures, call by call",
    "replay": "run captured calls again and compare",
    "report": "one HTML file about a capture",
    "first-bad": "the first operator of a script's run that is wrong",
    "self-check": "a script with and without each tool: the same bits, at what cost",
    "import": "ditorch's folders -> a capture",
    "export": "a capture -> ditorch's folders",
}


def _module(command: str):
    return importlib.import_module(f"op_tools.cli.{command.replace('-', '_')}_command")


def _parse(parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    words = ["self-check" if word == "--self-check" else word for word in words[:1]] + words[1:]
    runs_a_script = words[:1] in (["first-bad"], ["self-check"])
    if not runs_a_script:
        return parser.parse_args(words)
    split = words.index("--") if "--" in words else len(words)
    module = _module(words[0])
    own = module.joined(words[:split]) if hasattr(module, "joined") else words[:split]
    flags, more = parser.parse_known_args(own)
    unknown = [word for word in more if word.startswith("-")]
    if unknown:
        parser.error(f"unknown: {' '.join(unknown)} (flags of the script go after --)")
    flags.arguments += more + words[split + 1 :]
    return flags


def main(arguments: list[str] | None = None) -> int:
    from op_tools.core import language
    from op_tools.core.printing import spelled_output

    with spelled_output():
        try:
            return _main(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            language.choose(None)


def _common(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """--version and --lang, which may stand anywhere before a `--`, and the words without them."""
    from op_tools.core import __version__, language

    split = words.index("--") if "--" in words else len(words)
    common = argparse.ArgumentParser(prog="op-tools", add_help=False, allow_abbrev=False)
    common.add_argument("--version", action="version", version=f"op-tools {__version__}")
    common.add_argument("--lang", choices=language.LANGUAGES)
    flags, rest = common.parse_known_args(words[:split])
    return flags, rest + words[split:]


def _main(words: list[str]) -> int:
    from op_tools.captures import CaptureError
    from op_tools.cli import words as chinese
    from op_tools.core import __version__, language

    common, words = _common(words)
    language.choose(common.lang)
    in_chinese = language.spoken() == "zh"
    parser = argparse.ArgumentParser(
        prog="op-tools",
        description=chinese.DESCRIPTION if in_chinese else __doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"op-tools {__version__}")
    parser.add_argument(
        "--lang",
        choices=language.LANGUAGES,
        help=chinese.LANG
        if in_chinese
        else "of help and reports (default: by LC_ALL, LC_MESSAGES, LANG)",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (chinese.COMMANDS if in_chinese else COMMANDS).items():
        _module(name).add(commands.add_parser(name, help=text, description=text))
    flags = _parse(parser, words)
    try:
        return _module(flags.command).run(flags)
    except BrokenPipeError:  # `op-tools ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (CaptureError, OSError, ValueError) as error:
        print(f"op-tools {flags.command}: {error}", file=sys.stderr)
        return 2
