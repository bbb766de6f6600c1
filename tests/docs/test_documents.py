# SPDX-License-Identifier: Apache-2.0
"""What documents show is what happens: their code blocks run, and print what stands there."""

import re
from pathlib import Path

import documents
import pytest
import torch

ROOT = Path(__file__).parents[2]
# A translation with the same blocks is not run again.
NAMES = (
    "graph-mode",
    "tools",
    "onnx",
    "custom-operators",
    "profiling",
    "distributed",
    "ecosystem",
)
RUN = ["README.md", "README.zh-CN.md", *(f"docs/{name}.md" for name in NAMES)]
TRANSLATED = {f"docs/{name}.md": f"docs/zh-CN/{name}.md" for name in NAMES}


@pytest.mark.slow
@pytest.mark.skipif(torch.version.cuda is not None, reason="shows the npu device's output")
@pytest.mark.parametrize("name", RUN)
def test_blocks_do_what_is_shown(name, tmp_path):
    wrong = documents.check(ROOT / name, tmp_path)
    assert not wrong, "\n" + documents.describe(ROOT / name, wrong)


@pytest.mark.parametrize("name", TRANSLATED)
def test_translations_have_the_same_blocks(name):
    ours, theirs = (
        [(block.info, block.lines) for block in documents.blocks((ROOT / path).read_text())]
        for path in (name, TRANSLATED[name])
    )
    assert len(ours) > 2
    assert ours == theirs


@pytest.mark.parametrize("name", [*RUN, *TRANSLATED.values()])
def test_links_lead_somewhere(name):
    links = documents.links((ROOT / name).read_text())
    assert links or not name.startswith("README")  # some guides have none
    for target in links:
        assert (ROOT / name).parent.joinpath(target).exists(), target


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
    ((command, real),) = documents.check(document, tmp_path / "run")
    assert (command.line, real) == (4, ["3"])
    documents.write(document, [(command, real)])
    (tmp_path / "again").mkdir()
    assert not documents.check(document, tmp_path / "again")


def test_the_tests_that_testing_md_names_exist():
    """`test_x.py`, `test_x.py::test_y`, and `::test_z` of the file named before; a * stands for any end."""
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    text = (ROOT / "docs/testing.md").read_text()
    named = re.findall(r"`(test_\w+\.py)?(?:::(test_\w+\*?))?`", text)
    file, found = "", 0
    for name, test in named:
        if not name and not test:
            continue
        file = name or file
        assert file in files, file
        pattern = "^def " + (test or "test_*").replace("*", r"\w+") + r"\("
        assert re.search(pattern, files[file], re.MULTILINE), (file, test)
        found += 1
    assert found > 30
