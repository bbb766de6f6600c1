# SPDX-License-Identifier: Apache-2.0
"""Turns ops/kinds.yaml into npu/kinds.h, the host side's builders and the guide's table.

Needs only PyYAML. Files are rewritten only when their text changes, so that builds stay short.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from kinds_emit import builders, guide_table, kinds_header
from kinds_model import KindsError, load_kinds


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", type=Path, required=True, help="ops/kinds.yaml")
    parser.add_argument("--out", type=Path, required=True, help="folder for the generated files")
    args = parser.parse_args()
    try:
        kinds = load_kinds(args.kinds)
    except KindsError as error:
        print(error, file=sys.stderr)
        return 1
    write(args.out / "include/npu/kinds.h", kinds_header(kinds))
    write(args.out / "driver/build_call.h", builders(kinds))
    write(args.out / "docs/kinds.md", guide_table(kinds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
