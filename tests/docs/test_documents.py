# SPDX-License-Identifier: Apache-2.0
"""What documents show is what happens: their code blocks run, and print what stands there."""

import html
import re
import sys
from pathlib import Path

import documents
import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "scripts"))

import terminal_svg  # noqa: E402

# Pages whose blocks are run. A page after another finds the files that the other made.
RUN = [
    "README.md",
    "README.zh-CN.md",
    "docs/start.md",
    "docs/commands.md docs/npu-operators.md docs/accelerator-dtypes.md",
    "docs/port-cuda.md",
    "docs/graph-mode.md",
    "docs/tools.md docs/tools-reference.md",
    "docs/onnx.md",
    "docs/custom-operators.md",
    "docs/profiling.md",
    "docs/distributed.md",
    "docs/ecosystem.md",
    "docs/ci.md",
    "docs/profiles.md",
    "docs/driver-guide.md",
]
# A translation has the same blocks, which are not run again.
TRANSLATED = sorted(path.name for path in (ROOT / "docs/zh-CN").glob("*.md"))


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="shows the npu device's output")
@pytest.mark.parametrize("names", RUN)
def test_blocks_do_what_is_shown(names, tmp_path):
    paths = [ROOT / name for name in names.split()]
    wrong = documents.check(paths, tmp_path)
    assert not wrong, "\n" + documents.describe(wrong)


@pytest.mark.skipif(torch.version.cuda is not None, reason="shows the npu device's output")
def test_the_picture_shows_what_its_program_prints():
    """Lines are wrapped in the picture, so all of its text is compared as one line."""
    program = ROOT / "examples/what_falls_back.py"
    shown, real = (
        "".join(html.unescape(text) for text in re.findall(r">([^<>]+)</text>", picture))
        for picture in (
            (ROOT / "docs/pictures/fallback.svg").read_text(),
            terminal_svg.draw(program, "fmax"),
        )
    )
    assert "CAUTION" in shown and "falls back: aten::fmax" in shown
    assert documents.same_line(shown, real)


@pytest.mark.parametrize("name", TRANSLATED)
def test_translations_have_the_same_headings_blocks_and_tables(name):
    ours, theirs = (
        documents.outline((ROOT / folder / name).read_text()) for folder in ("docs", "docs/zh-CN")
    )
    assert ours == theirs


def test_an_outline_tells_what_translations_share():
    text = (
        "# One\n\ntext\n\n| a | b |\n|---|---|\n| c \\| d | e |\n\n```python\n# no heading\n```\n"
    )
    assert documents.outline(text) == ["#", "table 2x2", "```python", "# no heading", "```"]
    assert documents.outline("- a list\n") == []


@pytest.mark.parametrize(
    "shown, real, is_same",
    [
        ("a table", "a  table", True),
        ("a table", "a chair", False),
        ("| name | 3 |", "| name | 4 |", False),
        ("| name | 300 |", "| name | 310 |", True),
        ("| name | 300 |", "| name | 330 |", False),
        ("took 1.25 ms", "took 17 us", True),
        ("took 1.25 ms", "lost 1.25 ms", False),
        ("E 2", "E 2.5e+03", True),
        ("instead of 7.58 (2.68x)", "instead of 2.10 (5.03x)", True),
        ("float32", "float64", False),
        ("loss nan", "loss 1.0", False),
        ("+---+", "+-----+", True),
        ("of_pid7_2026-01-02-03-04-05_1.csv", "of_pid99_2027-11-12-13-14-15_1.csv", True),
        ("of_pid7_2026-01-02-03-04-05_1.csv", "of_pid99_2027-11-12-13-14-15_1.txt", False),
        ("out/2026-01-02-03-04-05-pid7/x", "out/2027-11-12-13-14-15-pid99/x", True),
        ("/home/you/train.py:3 step", "/tmp/abc/train.py:3 step", True),
        ("/home/you/train.py:3 step", "/tmp/abc/other.py:3 step", False),
        ("float32[8,16]", "float64[8,16]", False),
        ("[W1119 12:03:36.05 a.cpp:83] Warning", "[W0102 01:00:00.9 b.cpp:7] Warning", True),
        ("[W1119 12:03:36.05 a.cpp:83] Warning", "[W1119 12:03:36.05 a.cpp:83] Error", False),
    ],
)
def test_lines_are_compared(shown, real, is_same):
    assert documents.same_line(shown, real) is is_same


def test_three_dots_stand_for_lines():
    assert documents.same(["a", "...", "z"], ["a", "b", "c", "z"])
    assert documents.same(["a", "...", "z"], ["a", "z"])
    assert not documents.same(["a", "...", "z"], ["a", "b"])
    assert not documents.same(["a"], ["a", "b"])


def test_a_changed_output_is_found_and_mended(tmp_path):
    document = tmp_path / "a.md"
    document.write_text("```console\n$ echo one; (exit 3)\none\n$ echo $?\n4\n```\n")
    (tmp_path / "run").mkdir()
    ((path, command, real),) = found = documents.check([document], tmp_path / "run")
    assert (path, command.line, real) == (document, 4, ["3"])
    documents.write(found)
    (tmp_path / "again").mkdir()
    assert not documents.check([document], tmp_path / "again")


def test_a_block_that_does_not_end_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(documents, "LIMIT", 1)
    document = tmp_path / "a.md"
    document.write_text("```console\n$ echo one\none\n$ sleep 30\n```\n")
    (tmp_path / "run").mkdir()
    with pytest.raises(AssertionError, match="line 2: stopped in command 2 of 2"):
        documents.check([document], tmp_path / "run")


def test_a_page_finds_what_the_page_before_it_made(tmp_path):
    first, second = tmp_path / "first.md", tmp_path / "second.md"
    first.write_text("```python say.py\nprint('one')\n```\n")
    second.write_text("```console\n$ python say.py\ntwo\n```\n")
    (tmp_path / "run").mkdir()
    ((path, _, real),) = documents.check([first, second], tmp_path / "run")
    assert (path, real) == (second, ["one"])
