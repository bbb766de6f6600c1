# SPDX-License-Identifier: Apache-2.0
"""Prints the source files of more than 500 lines: such a file may have more than one job. A warning, never an error."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 500
SOURCES = {".c", ".cpp", ".h", ".inc", ".py"}
# Made by builds and by users, not ours.
NOT_OURS = {"build", "dist", "shared"}


def source_files() -> list[Path]:
    folders = [p for p in ROOT.iterdir() if p.is_dir() and p.name not in NOT_OURS]
    return [
        file
        for folder in folders
        if not folder.name.startswith(".")
        for file in folder.rglob("*")
        if file.suffix in SOURCES
    ]


def main() -> int:
    files = source_files()
    long = [(len(file.read_text().splitlines()), file) for file in files]
    for lines, file in sorted(long, reverse=True):
        if lines > LIMIT:
            print(
                f"warning: {file.relative_to(ROOT)}: {lines} lines, more than {LIMIT}: has it one job?"
            )
    print(f"size: {len(files)} files, at most {max(long)[0] if long else 0} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
