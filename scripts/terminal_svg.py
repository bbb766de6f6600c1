# SPDX-License-Identifier: Apache-2.0
"""A picture of a program beside what it prints, as SVG: docs/pictures/fallback.svg.

python scripts/terminal_svg.py OUT.svg PROGRAM.py WORD      lines of the program that hold WORD are marked
"""

import html
import os
import subprocess
import sys
from pathlib import Path

COLUMNS, COLUMN, ROW, LEFT, TOP, GAP = 66, 7.3, 18, 16, 52, 12
PANE = round(2 * LEFT + COLUMNS * COLUMN)
PLAIN, GREEN, YELLOW, GREY = "#e6e8ec", "#7ee787", "#e3b341", "#9aa0aa"
STYLE = "font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre"


def pane(x: int, height: int, title: str, lines: list[tuple[str, str]]) -> list[str]:
    parts = [
        f'<rect x="{x}" width="{PANE}" height="{height}" rx="9" fill="#16181d"/>',
        *(f'<circle cx="{x + 22 + 20 * i}" cy="20" r="6" fill="{colour}"/>'
          for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))),
        f'<text x="{x + PANE / 2}" y="24" fill="{GREY}" text-anchor="middle">{html.escape(title)}</text>',
    ]  # fmt: skip
    for i, (colour, text) in enumerate(lines):
        y = TOP + ROW * i
        if colour == YELLOW:
            parts.append(
                f'<rect x="{x}" y="{y - 13}" width="{PANE}" height="{ROW}" fill="#3a3218"/>'
            )
        parts.append(
            f'<text x="{x + LEFT}" y="{y}" fill="{colour}" xml:space="preserve">{html.escape(text)}</text>'
        )
    return parts


def code(program: Path, word: str) -> list[tuple[str, str]]:
    """The program from its first import on."""
    text = program.read_text(encoding="utf-8")
    lines = text[text.index("import ") :].rstrip().splitlines()
    return [(YELLOW if word in line else PLAIN, line) for line in lines]


def output(program: Path) -> str:
    command = [sys.executable, "-u", program.name]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    # The program loads the plugin by `import torch`, whatever this process does.
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=program.parent, env=env, text=True, **streams)
    if done.returncode:
        raise RuntimeError(f"{program.name} ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def terminal(program: Path) -> list[tuple[str, str]]:
    lines = [(GREEN, f"$ python {program.name}")]
    for line in output(program).rstrip().splitlines():
        colour = YELLOW if "CAUTION" in line or "falls back" in line else PLAIN
        lines += [(colour, line[i : i + COLUMNS]) for i in range(0, len(line), COLUMNS)]
    return lines


def draw(program: Path, word: str) -> str:
    left, right = code(program, word), terminal(program)
    width, height = 2 * PANE + GAP, TOP + ROW * max(len(left), len(right)) + 4
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{STYLE}">',
        *pane(0, height, program.name, left),
        *pane(PANE + GAP, height, "no chip in this computer", right),
        "</svg>",
        "",
    ])  # fmt: skip


if __name__ == "__main__":
    out, program, word = sys.argv[1:]
    Path(out).write_text(draw(Path(program), word), encoding="utf-8")
