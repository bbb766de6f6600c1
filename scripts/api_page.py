# SPDX-License-Identifier: Apache-2.0
"""The part of docs/api.md, in both languages, about names that wait, made from the code.

python scripts/api_page.py [--write]     without --write: exit status 1 where a page says something else
"""

import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- made by scripts/api_page.py -->\n", "<!-- end -->\n"
# Page: what it says of names that raise, the head of their table, of contrib's names, of absent names.
PAGES = {
    "docs/api.md": (
        "These exist and raise NotImplementedError, with one line that names what brings them.",
        "| comes with | names |",
        "`torch_npu.contrib` has its functions and modules under their paths. Those on npu operators wait in the same way:",
        "These are absent, so that `hasattr` tells the truth, and the AttributeError names what brings them:",
    ),
    "docs/zh-CN/api.md": (
        "下面的名字存在，调用时抛出 NotImplementedError，并用一行说明它们随什么功能一起提供。",
        "| 随何功能提供 | 名字 |",
        "`torch_npu.contrib` 的函数和模块都在原来的路径下。其中基于 npu 算子、还没有实现的有：",
        "下面的名字不存在，因此 `hasattr` 返回真实情况，AttributeError 会说明它们随什么功能一起提供：",
    ),
}


def waiting(raising: str, head: str, of_contrib: str, absent: str) -> str:
    from torch_npu import _exports
    from torch_npu.npu import _later

    parts: dict[str, list[str]] = {}
    for name, part in _later.LATER.items():
        parts.setdefault(part, []).append(name)
    lines = [raising, "", head, "|---|---|"]
    for part, names in parts.items():
        lines.append(f"| {part} | {', '.join(f'`{name}`' for name in sorted(names))} |")
    lines += ["", *_paragraph(of_contrib, contrib())]
    lines += ["", *_paragraph(absent, [f"torch_npu.{name}" for name in sorted(_exports._LATER)])]
    return "\n".join(lines) + "\n"


def contrib() -> list[str]:
    files = sorted((ROOT / "python" / "torch_npu" / "contrib").rglob("*.py"))
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return sorted(re.findall(r'^\w+ = later\("(\w+)"\)', text, re.MULTILINE))


def _paragraph(start: str, names: list[str]) -> list[str]:
    text = f"{start} {', '.join(f'`{name}`' for name in names)}." if names else ""
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)


def main(write: bool) -> int:
    stale = []
    for name, sentences in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        head, rest = text.split(BEGIN)
        made = head + BEGIN + waiting(*sentences) + END + rest.split(END)[1]
        if made == text:
            continue
        stale.append(name)
        if write:
            (ROOT / name).write_text(made, encoding="utf-8")
    if stale and not write:
        print(f"{', '.join(stale)}: not what the code says: python scripts/api_page.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--write" in sys.argv))
