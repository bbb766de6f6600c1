# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of documents, in order, in one folder, and compares what they print.

    python tests/docs/documents.py docs/tools.md... [--write]     --write: puts the real output in

A fence's first line says what a block is:
    LANGUAGE NAME     a file of that name (python use.py, cpp my_ops/csrc/functions.cpp)
    python            a script: it has to end well
    console           `$ command` lines, each followed by what it prints (both streams)
Other blocks are only to be read. A line `...` stands for any lines. Numbers are compared loosely, as
they differ between machines: a whole number may be off by one in twenty (so small ones are exact),
and a number with a point or an exponent stands for any number. So do times, durations,
process numbers, addresses and hashes; an absolute path stands for any that ends in the same name. How wide a column
or a rule of a table is does not matter. Every other character has to be there.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent))

from fork_commands import Commands

ANY = "..."
# Commands of the documents, and the modules they are.
COMMANDS = {
    "python": "",
    "op-tools": "op_tools",
    "opennpu": "opennpu",
    "torchrun": "torch.distributed.run",
}
HOME = "/home/you"  # what documents call the folder their commands run in
LIMIT = 900  # seconds for a block
_MARK = "--- end of a command ---"
_LOOSE = (  # what differs from run to run, and what stands for it
    (re.compile(r"(?<!\d)\d{4}-\d\d-\d\d--?\d\d-\d\d(-\d\d)?(?!\d)"), "TIME"),
    (re.compile(r"(?<![a-z])pid:? ?\d+"), "PID"),
    (re.compile(r"\(process \d+\)"), "PROCESS"),
    (re.compile(r"\b\d{12,}\b"), "ADDRESS"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "HASH"),
    (re.compile(r"(?<![\w./])/(?:[\w.+-]+/)+"), "/"),
    (re.compile(r"\d+(\.\d+)? (us|ms|s)\b"), "DURATION"),
    (re.compile(r"\[W\d+ [\d:.]+ [\w.]+:\d+\]"), "[W]"),  # time, file and line
    (re.compile(r"-{2,}"), "--"),
)
_NUMBER = re.compile(r"(?<![\w.])[-+]?(\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?=x\b|\W|$)")


@dataclass
class Block:
    line: int  # of the fence, from 1
    info: str
    lines: list[str]


@dataclass
class Command:
    line: int
    text: str
    shown: list[str]


def blocks(text: str) -> list[Block]:
    found, opened = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if opened is None and line.startswith("```"):
            opened = Block(number, line[3:].strip(), [])
        elif opened is not None and line == "```":
            found.append(opened)
            opened = None
        elif opened is not None:
            opened.lines.append(line)
    assert opened is None, f"line {opened.line}: the block has no end"
    return found


def commands(block: Block) -> list[Command]:
    found: list[Command] = []
    for number, line in enumerate(block.lines, block.line + 1):
        if line.startswith("$ "):
            found.append(Command(number, line[2:], []))
        elif found and not found[-1].shown and found[-1].text.endswith("\\"):
            found[-1].text += "\n" + line
        else:
            assert found, f"line {number}: output before a command"
            found[-1].shown.append(line)
    return found


def outline(text: str) -> list[str]:
    """What a translation keeps: levels of headings, whole blocks, columns and rows of tables."""
    found: list[str] = []
    fenced, rows = False, []
    for line in [*text.splitlines(), ""]:
        if rows and not line.startswith("|"):
            columns = len(re.split(r"(?<!\\)[|]", rows[0])) - 2
            found.append(f"table {columns}x{len(rows) - 1}")
            rows = []
        if line.startswith("```"):
            fenced = not fenced
            found.append(line)
        elif fenced:
            found.append(line)
        elif line.startswith("|"):
            rows.append(line)
        elif heading := re.match("#+", line):
            found.append(heading[0])
    return found


# ---- comparison ----------------------------------------------------------------------
def _plain(line: str) -> str:
    for pattern, name in _LOOSE:
        line = pattern.sub(name, line)
    return " ".join(line.split())


def same_line(shown: str, real: str) -> bool:
    a, b = _plain(shown), _plain(real)
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    for one, other in zip(_NUMBER.findall(a), _NUMBER.findall(b)):
        if one.isdigit() and other.isdigit() and abs(int(one) - int(other)) * 20 > int(one):
            return False
    return True


def same(shown: list[str], real: list[str]) -> bool:
    if not shown:
        return not real
    if shown[0] == ANY:
        return any(same(shown[1:], real[skip:]) for skip in range(len(real) + 1))
    return bool(real) and same_line(shown[0], real[0]) and same(shown[1:], real[1:])


# ---- running -------------------------------------------------------------------------
class Session:
    """One document's folder: a block finds what the ones before it left there."""

    def __init__(self, folder: Path) -> None:
        self.work, tools, site = folder / "work", folder / "bin", folder / "site"
        self.work.mkdir()
        tools.mkdir()
        ours = ("OP_", "NPU_", "DITORCH_", "AUTOCOMPARE_", "PYTHON", "TORCH_", "RANK")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        self.env["PATH"] = f"{tools}:{self.env.get('PATH', '')}"
        self.env.update(OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1", PYTHONPATH=str(site))
        # What a document compiles is found again by the compiler cache: the folder's name is not part of it.
        self.env.update(CCACHE_BASEDIR=str(self.work), CCACHE_NOHASHDIR="1")
        # `opennpu top` sees the processes of these blocks, not those of other tests.
        (folder / "top").mkdir(mode=0o700)
        self.env["NPU_TOP_FOLDER"] = str(folder / "top")
        if not entry_points(group="torch.backends"):  # a build folder's install has no metadata
            about = site / "opennpu-0.dist-info"
            about.mkdir(parents=True)
            (about / "METADATA").write_text("Metadata-Version: 2.1\nName: opennpu\nVersion: 0\n")
            entry = "[torch.backends]\ntorch_npu = torch_npu:_autoload\n"
            (about / "entry_points.txt").write_text(entry)

        self.commands = Commands(self.env)
        for name, module in COMMANDS.items():
            self.commands.write(tools / name, *(("-m", module) if module else ()))

    def _shell(self, script: str) -> subprocess.CompletedProcess:
        command = ["timeout", str(LIMIT), "bash", "-c", script]
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        streams["stderr"] = subprocess.STDOUT
        return subprocess.run(command, cwd=self.work, env=self.env, text=True, **streams)

    def console(self, asked: list[Command]) -> list[list[str]]:
        """What each command printed; the block is one shell, which has to reach its end."""
        after = f"\n__code=$?; echo '{_MARK}'; (exit $__code)\n"
        text = self._shell("".join(command.text + after for command in asked)).stdout
        *told, rest = text.replace(str(self.work), HOME).split(_MARK + "\n")
        stopped = (
            f"line {asked[0].line}: stopped in command {len(told) + 1} of {len(asked)}\n{rest}"
        )
        assert len(told) == len(asked), stopped
        return [part.splitlines() for part in told]

    def run(self, block: Block) -> list[tuple[Command, list[str]]]:
        """(command, what it really printed) where that is not what the document shows."""
        kind, _, name = block.info.partition(" ")
        body = "\n".join(block.lines) + "\n"
        if name or kind == "python":
            (self.work / (name or "block.py")).write_text(body)
        if kind == "python" and not name:
            done = self._shell("python block.py")
            assert done.returncode == 0, f"line {block.line}: the script fails\n{done.stdout}"
        if kind != "console":
            return []
        told = self.console(asked := commands(block))
        return [(c, out) for c, out in zip(asked, told) if not same(c.shown, out)]


Wrong = list[tuple[Path, Command, list[str]]]  # what a command really printed


def check(paths: list[Path], folder: Path) -> Wrong:
    session = Session(folder)
    try:
        return [
            (path, command, real)
            for path in paths
            for block in blocks(path.read_text())
            for command, real in session.run(block)
        ]
    finally:
        session.commands.close()


def describe(wrong: Wrong) -> str:
    said = []
    for path, command, real in wrong:
        said.append(f"{path.name}:{command.line}: $ {command.text}")
        said += [f"  shown | {line}" for line in command.shown]
        said += [f"  real  | {line}" for line in real]
    return "\n".join(said)


def write(wrong: Wrong) -> None:
    for path, command, real in reversed(wrong):
        lines = path.read_text().splitlines()
        first = command.line + command.text.count("\n")
        lines[first : first + len(command.shown)] = real
        path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        documents = [Path(name) for name in sys.argv[1:] if name != "--write"]
        found = check(documents, Path(scratch))
    print(describe(found))
    if "--write" in sys.argv:
        write(found)
    sys.exit(1 if found else 0)
