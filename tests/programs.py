# SPDX-License-Identifier: Apache-2.0
"""Programs that a test file runs in processes of their own: `programs/<test file>/<name>.py` beside it.

A name that begins with `_` is a program that a test asks for, or a part of one. The others are whole tests: one
parametrised test of the file runs each. Lines `# NAME=value` at their beginning are variables it runs with.
"""

import re
from pathlib import Path

VARIABLE = re.compile(r"# ([A-Z]\w+)=(.*)\n")


def _folder(test_file: str) -> Path:
    path = Path(test_file)
    return path.parent / "programs" / path.stem.removeprefix("test_")


def program(test_file: str, name: str) -> str:
    """Without the line of the license: the next one is line 2, as in a string that begins with a new line."""
    text = (_folder(test_file) / f"{name}.py").read_text(encoding="utf-8")
    return text[text.index("\n") :]


def names(test_file: str) -> list[str]:
    """Of the whole tests."""
    found = sorted(path.stem for path in _folder(test_file).glob("[!_]*.py"))
    assert found, f"{_folder(test_file)} has no programs"
    return found


def variables(test_file: str, name: str) -> dict[str, str]:
    """That a whole test runs with."""
    found = {}
    for line in program(test_file, name).splitlines(keepends=True)[1:]:
        held = VARIABLE.fullmatch(line)
        if held is None:
            return found
        found[held[1]] = held[2]
    return found
