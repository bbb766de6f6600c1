# SPDX-License-Identifier: Apache-2.0
"""seeds/003, the API guide: what the generator makes of every line it prints (expected.yaml)."""

import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))

from aten_torch import load_torch, packaged_yaml
from aten_yaml import load_pack
from kinds_model import load_kinds
from yaml_reader import YamlError

EXPECTED = yaml.safe_load((Path(__file__).parent / "expected.yaml").read_text(encoding="utf-8"))
HEAD = "backend: NPU     # Backend类型\ncpp_namespace: at_npu::native\n"
LINES = [
    *[(section, row) for section, rows in EXPECTED["file"].items() for row in rows],
    *[("supported", row) for row in EXPECTED["without_dashes"]["lines"]],
    *[("supported", row) for row in EXPECTED["schemas"]],
]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(yaml text) gives the operators' names and the problems."""
    torch_ops, kinds = load_torch(packaged_yaml()), load_kinds(ROOT / "ops/kinds.yaml")
    file = tmp_path_factory.mktemp("guide") / "guide.yaml"

    def load(text: str):
        file.write_text(text, encoding="utf-8")
        try:
            return [o.name for o in load_pack([file], torch_ops, kinds).operators], []
        except YamlError as error:
            return [], str(error).replace(str(file), file.name).splitlines()

    return load


@pytest.mark.parametrize(("section", "row"), LINES, ids=[row["line"][:40] for _, row in LINES])
def test_line(section, row, run):
    names, problems = run(f"{HEAD}{section}:\n  - {row['line']}\n")
    if row["outcome"] == "accepted":
        assert problems == [] and len(names) == 1
    else:
        assert row["outcome"] == "refused"
        assert len(problems) == 1, problems
        assert problems[0].startswith(f"guide.yaml:4: key '{section}': "), problems
        assert row["reason"] in problems[0], problems


def test_whole_file(run):
    """All lines together: exactly the refused ones are named, each with its own line."""
    text, refused = HEAD, []
    for section, rows in EXPECTED["file"].items():
        text += f"{section}:\n"
        for row in rows:
            if row.get("in_file", True):
                text += f"  - {row['line']}\n"
                if row["outcome"] == "refused":
                    refused.append((text.count("\n"), row["reason"]))
    _, problems = run(text)
    assert len(problems) == len(refused) == 4, problems
    for problem, (line, reason) in zip(problems, refused, strict=True):
        assert problem.startswith(f"guide.yaml:{line}: ") and reason in problem, problem


def test_list_without_dashes(run):
    printed = EXPECTED["without_dashes"]
    _, problems = run(HEAD + printed["text"])
    assert len(problems) == len(printed["problems"]), problems
    for problem, expected in zip(problems, printed["problems"], strict=True):
        assert problem.startswith(f"guide.yaml:{expected['line'] + 2}: key 'supported': "), problem
        assert expected["reason"] in problem, problem
    for wrong, right in printed["nearest"].items():
        assert any(wrong in p and f"did you mean '{right}'?" in p for p in problems), problems


def test_signatures_are_those_that_the_pack_compiles():
    """tests/codegen/test_pack.py compiles and runs them."""

    def tokens(text: str) -> str:
        return "".join(text.split())

    code = tokens((ROOT / "tests/codegen/pack/functions.cpp").read_text(encoding="utf-8"))
    for signature in EXPECTED["signatures"]:
        assert tokens(signature) + "{" in code, signature
