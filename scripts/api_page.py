# SPDX-License-Identifier: Apache-2.0
"""The part of docs/api.md about names that wait, made from the code.

python scripts/api_page.py [--write]     without --write: exit status 1 where the page says something else
"""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
BEGIN, END = "<!-- made by scripts/api_page.py -->\n", "<!-- end -->\n"


def waiting() -> str:
    from torch_npu import _exports
    from torch_npu.npu import _later

    parts: dict[str, list[str]] = {}
    for name, part in _later.LATER.items():
        parts.setdefault(part, []).append(name)
    lines = [
        "These exist and raise NotImplementedError, with one line that names what brings them.",
        "",
    ]
    lines += ["| comes with | names |", "|---|---|"]
    for part, names in parts.items():
        lines.append(f"| {part} | {', '.join(f'`{name}`' for name in sorted(names))} |")
    lines += ["", *_paragraph(
        "`torch_npu.contrib` has its functions and modules under their paths. Those on npu operators wait in the same way:",
        contrib(),
    )]  # fmt: skip
    lines += ["", *_paragraph(
        "These are absent, so that `hasattr` tells the truth, and the AttributeError names what brings them:",
        [f"torch_npu.{name}" for name in sorted(_exports._LATER)],
    )]  # fmt: skip
    return "\n".join(lines) + "\n"


def contrib() -> list[str]:
    files = sorted((ROOT / "python" / "torch_npu" / "contrib").rglob("*.py"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return sorted(re.findall(r'^\w+ = later\("(\w+)"\)', text, re.MULTILINE))


def _paragraph(start: str, names: list[str]) -> list[str]:
    text = f"{start} {', '.join(f'`{name}`' for name in names)}." if names else ""
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def main(write: bool) -> int:
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    made = head + BEGIN + waiting() + END + rest.split(END)[1]
    if made == text:
        return 0
    if write:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    print("docs/api.md is not what the code says: python scripts/api_page.py --write")
    return 1


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv))
