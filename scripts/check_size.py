# SPDX-License-Identifier: Apache-2.0
"""No source file has more than 500 lines: a longer one has more than one job."""

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
                f"{file.relative_to(ROOT)}: {lines} lines, at most {LIMIT}: split it by its jobs."
            )
    print(f"size: {len(files)} files, at most {max(long)[0] if long else 0} lines")
    return 1 if any(lines > LIMIT for lines, _ in long) else 0


if __name__ == "__main__":
    sys.exit(main())
