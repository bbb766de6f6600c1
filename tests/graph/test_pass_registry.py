# SPDX-License-Identifier: Apache-2.0
"""The registry of passes (src/graph/passes/registry.cpp): every row has its switch, counters, documents and dump."""

import re
from pathlib import Path

import pytest
import torch
import torchair
from torch_npu import _C
from torchair import _compiler

ROOT = Path(__file__).resolve().parents[2]
PASSES = _C._graph_passes()


def compiled_step():
    xs = [torch.randn(40, device="npu") for _ in range(3)]
    function = torch.compile(
        lambda: torch._foreach_add(torch._foreach_mul(xs, 2.0), 1.0),
        backend=torchair.get_npu_backend(),
    )
    for _ in range(2):
        function()


def table(page):
    """name -> (sentence, counters) of a document's table of passes."""
    rows = re.findall(
        r"^\| (\w+) \| (.+?) \| ((?:`\w+`[,、 ]*)+)\|$", page.read_text(), re.MULTILINE
    )
    return {name: (text, re.findall(r"`(\w+)`", counters)) for name, text, counters in rows}


def test_documents_have_the_rows_of_the_registry():
    english = table(ROOT / "docs/graph-mode.md")
    chinese = table(ROOT / "docs/zh-CN/graph-mode.md")
    names = [row["name"] for row in PASSES]
    assert [name for name in english if name in names] == names
    for row in PASSES:
        assert english[row["name"]] == (row["doc"], row["counters"])
        assert chinese[row["name"]][1] == row["counters"]


@pytest.mark.parametrize("row", PASSES, ids=lambda row: row["name"])
def test_every_pass_has_a_file_and_a_switch(row, counts, monkeypatch):
    assert (ROOT / f"src/graph/passes/{row['name']}.cpp").exists()
    monkeypatch.setenv("NPU_GRAPH_OFF", row["name"])
    compiled_step()
    assert counts("recorded") == 1
    assert all(counts(counter) == 0 for counter in row["counters"])


def test_an_unknown_switch_is_refused_with_the_names(monkeypatch):
    monkeypatch.setenv("NPU_GRAPH_OFF", "tile")
    with pytest.raises(Exception, match="copies, dead, reuse, rows, chains, tiles"):
        compiled_step()


def test_dumps_have_a_file_before_and_after_each_pass(tmp_path, monkeypatch):
    monkeypatch.setenv("NPU_GRAPH_DUMP", str(tmp_path / "new" / "folder"))
    compiled_step()
    files = sorted((tmp_path / "new" / "folder").iterdir())
    steps = ["recorded", *(row["name"] for row in PASSES)]
    for suffix in ("txt", "dot"):
        found = [f.name.split(".", 1)[1] for f in files if f.suffix == "." + suffix]
        assert found == [f"{i}.{name}.{suffix}" for i, name in enumerate(steps)]
    assert all(run.replayer.counts()["recorded"] == 1 for run in _compiler.runners)
