# SPDX-License-Identifier: Apache-2.0
"""The list of operators: what the YAML says, and what was seen to run."""

import dataclasses
import json

import pytest
from aten_list import emit, load_seen
from yaml_reader import YamlError

TEXT = """supported:
  - func: erfinv.out
    kind: unary
  - func: div.out_mode
    kind: binary
    code: {rounding_mode: {~: div, trunc: div_trunc, floor: div_floor}}
  - func: amax.out
    kind: reduce
    code: max
    impl: reduce_out
  - func: flip
    uses: flip
"""
SEEN = """aten::erfinv unary.erfinv 1,2 f32,f16
aten::copy_ copy 1 f32  # by hand, no YAML
aten::flip flip 1 f32
aten::flip index_select 3 f32
aten::of_another_torch copy 1 f32
"""


@pytest.fixture
def listed(load, torch_ops, kinds, tmp_path):
    (tmp_path / "seen.txt").write_text(SEEN, encoding="utf-8")
    pack = dataclasses.replace(load(TEXT), seen=load_seen(tmp_path / "seen.txt", kinds))
    made = emit(pack, torch_ops)
    return json.loads(made["operators.json"])["operators"], made["docs/operators.md"]


def test_rows(listed):
    rows = {row["overload"]: row for row in listed[0]}
    assert list(rows) == sorted(rows)
    assert rows["aten::erfinv"]["seen"] == {"unary.erfinv": ["f32", "f16"]}
    assert (
        rows["aten::erfinv_"]["calls"] == ["unary.erfinv"] and "seen" not in rows["aten::erfinv_"]
    )
    assert rows["aten::div.Tensor_mode"]["calls"] == [
        "binary.div", "binary.div_trunc", "binary.div_floor",
    ]  # fmt: skip
    assert rows["aten::amax"]["how"] == "impl" and rows["aten::amax"]["calls"] == ["reduce.max"]
    assert rows["aten::flip"]["how"] == "hand" and rows["aten::flip"]["calls"] == ["flip"]
    assert rows["aten::copy_"]["calls"] == ["copy"]
    assert "aten::of_another_torch" not in rows


def test_rungs(listed):
    rows = {row["overload"]: row for row in listed[0]}
    assert rows["aten::erfinv"]["rungs"] == [1, 2] and "parts" not in rows["aten::erfinv"]
    assert rows["aten::flip"]["rungs"] == [1, 3] and rows["aten::flip"]["parts"] == ["index_select"]
    assert "| `aten::erfinv` | `unary.erfinv` | kind | 1 2 | f16 f32 |" in listed[1]


def test_page_has_every_overload(listed):
    rows, page = listed
    for row in rows:
        assert f"| `{row['overload']}` |" in page
    assert f"{len(rows)} overloads reach the driver, 3 of them" in page


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("aten::erfinv unary.erfinv f32", "expected 'overload kind[.code] rung"),
        ("aten::erfinv unary.erfinv 4 f32", "rungs 1 to 3"),
        ("aten::erfinv unari.erfinv 1 f32", "did you mean 'unary'?"),
        ("aten::erfinv unary.erfin 1 f32", "is no kind and code"),
    ],
)
def test_wrong_line_of_the_seen_file(line, part, kinds, tmp_path):
    (tmp_path / "seen.txt").write_text(f"# head\n{line}\n", encoding="utf-8")
    with pytest.raises(YamlError) as caught:
        load_seen(tmp_path / "seen.txt", kinds)
    assert "seen.txt:2: " in str(caught.value) and part in str(caught.value)
