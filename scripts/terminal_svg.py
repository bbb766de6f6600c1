# SPDX-License-Identifier: Apache-2.0
"""A picture of a terminal: runs a command and draws it with what it printed, as SVG.

python scripts/terminal_svg.py OUT.svg TITLE -- python example.py
"""

import html
import os
import subprocess
import sys

WIDTH, ROW, LEFT, TOP = 1000, 19, 18, 54
STYLE = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:13.5px;white-space:pre"


def draw(title: str, lines: list[tuple[str, str]]) -> str:
    height = TOP + ROW * len(lines) + 12
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f'<rect width="{WIDTH}" height="{height}" rx="9" fill="#16181d"/>',
        *(f'<circle cx="{22 + 20 * i}" cy="20" r="6" fill="{c}"/>'
          for i, c in enumerate(("#ff5f57", "#febc2e", "#28c840"))),
        f'<text x="{WIDTH / 2}" y="25" fill="#9aa0aa" text-anchor="middle" style="{STYLE}">{html.escape(title)}</text>',
    ]  # fmt: skip
    for i, (colour, text) in enumerate(lines):
        parts.append(
            f'<text x="{LEFT}" y="{TOP + ROW * i}" fill="{colour}" xml:space="preserve" style="{STYLE}">'
            f"{html.escape(text)}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


def main(out: str, title: str, *command: str) -> None:
    command = command[1:] if command[:1] == ("--",) else command
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "COLUMNS": "110"},
    )
    lines = [("#7ee787", "$ " + " ".join(os.path.basename(part) for part in command))]
    for line in done.stdout.rstrip().splitlines():
        colour = "#e3b341" if "CAUTION" in line else "#e6e8ec"
        lines += [(colour, line[i : i + 120]) for i in range(0, max(len(line), 1), 120)]
    with open(out, "w", encoding="utf-8") as file:
        file.write(draw(title, lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
