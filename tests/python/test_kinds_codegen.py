# SPDX-License-Identifier: Apache-2.0
"""codegen/kinds.py: what it refuses, in which words, and that its headers compile strictly."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "codegen" / "kinds.py"

GOOD = """\
version: 1
kinds:
  - kind: thing
    slot: 1
    family: move
    outs: {out: out, extra: "out? bool"}
    ins: {in: in, index: in index}
    attrs: {dtype_of: dtype, flag: bool, sizes: "i64[3] !key", mode: "enum(none, mean) !key"}
    plan: shape
"""


def generate(tmp_path: Path, text: str) -> subprocess.CompletedProcess:
    kinds = tmp_path / "kinds.yaml"
    kinds.write_text(text)
    return subprocess.run(
        [sys.executable, str(SCRIPT), "--kinds", str(kinds), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )


def test_writes_its_files_and_only_when_they_change(tmp_path):
    assert generate(tmp_path, GOOD).returncode == 0
    header = tmp_path / "out/include/npu/kinds.h"
    text = header.read_text()
    assert "#define NPU_KIND_THING 1u" in text
    assert "#define NPU_THING_MODE_MEAN 1u" in text
    assert (tmp_path / "out/driver/build_call.h").is_file()
    assert "| 1 | `thing` |" in (tmp_path / "out/docs/kinds.md").read_text()
    before = header.stat().st_mtime_ns
    assert generate(tmp_path, GOOD).returncode == 0
    assert header.stat().st_mtime_ns == before


def test_what_came_with_a_later_minor_is_marked(tmp_path):
    text = GOOD.replace("mean) !key", "mean) !key !cap(epilogue)")
    assert generate(tmp_path, text.replace("plan: shape", "plan: shape since 1.1")).returncode == 0
    header = (tmp_path / "out/include/npu/kinds.h").read_text()
    # The row: what a driver may plan today, flags, and what one of contract 1.0 may.
    row = re.search(r'\{"thing", "move", 1u, (.*?)\},\n', header, re.DOTALL).group(1)
    assert row.startswith("NPU_KIND_LATER_ATTRS,") and "NPU_PLAN_BY_SHAPE" in row
    assert re.search(r"NPU_PLAN_NONE,\s+NPU_PLAN_BY_SHAPE$", row)  # of 1.0, of 1.1
    assert re.search(r'"mode", "enum", \d+u, 4u, NPU_KEY_VALUE, 2u, NPU_CAP_EPILOGUE, 1u\}', header)
    guide = (tmp_path / "out/docs/kinds.md").read_text()
    assert "`mode` is set only for kernels with `NPU_CAP_EPILOGUE` (1.1)." in guide
    assert "Planned since 1.1." in guide


def test_what_came_with_minor_1_2_is_marked(tmp_path):
    text = (
        GOOD.replace("mean) !key", "mean, sum) !key !cap(epilogue_grad from sum)")
        .replace("index: in index", 'index: in index, aux: "in? f32 !cap(epilogue_grad)"')
        .replace("flag: bool", "alpha: scalar !class, flag: bool")
        .replace(
            "plan: shape", "plan: shape since 1.2\n    intermediate: operand\n    reserved: true"
        )
    )
    assert generate(tmp_path, text).returncode == 0
    header = (tmp_path / "out/include/npu/kinds.h").read_text()
    row = re.search(r'\{"thing", "move", 1u, (.*?)\},\n', header, re.DOTALL).group(1)
    assert row.startswith("NPU_KIND_LATER_ATTRS | NPU_KIND_ROUNDS_BETWEEN | NPU_KIND_RESERVED,")
    assert re.search(r"NPU_PLAN_NONE,\s+NPU_PLAN_NONE$", row)
    assert re.search(r'"mode", .*3u, NPU_CAP_EPILOGUE_GRAD, 2u\}', header)
    assert re.search(r'"alpha", "scalar", .*NPU_KEY_CLASS, 0u, 0u, 1u\}', header)
    assert re.search(r'"aux", NPU_MODE_IN, 1u,\s+NPU_DTYPE.*NPU_CAP_EPILOGUE_GRAD\}', header)
    # Callers that know nothing of the later operand count one input less.
    builders = (tmp_path / "out/driver/build_call.h").read_text()
    plain, later = re.findall(r"inline void (thing\w*)\(\n(.*?)\) \{", builders, re.DOTALL)
    assert plain[0] == "thing" and "aux" not in plain[1]
    assert later[0] == "thing_with_aux" and "const npu_tensor* aux" in later[1]
    guide = (tmp_path / "out/docs/kinds.md").read_text()
    assert "| 1 | `thing` (reserved) |" in guide and "alpha~: scalar" in guide
    assert "`sum` need `NPU_CAP_EPILOGUE_GRAD` (1.2)." in guide
    assert "`aux` is given only to kernels with `NPU_CAP_EPILOGUE_GRAD` (1.2)." in guide
    assert "Planned since 1.2." in guide and "Reserved: no operator asks for it yet" in guide


# What is put in place of what, and what the complaint must say (after file:line:).
WRONG = [
    ("slot: 1", "slot: 0", r":4: kind 'thing': key 'slot': '0' is not a slot. Allowed: 1 to 255"),
    ("slot: 1", "slott: 1", r":4: kind 'thing': key 'slott' is not known. Allowed: kind, slot"),
    ("    slot: 1\n", "", r":3: kind 'thing': key 'slot' is missing"),
    ("kind: thing", "kind: Thing", r":3: key 'kind': 'Thing' is not a name"),
    ("kind: thing", "kind: switch", r":3: key 'kind': 'switch' is reserved"),
    ("plan: shape", "plan: shap", r":9: .*key 'plan': 'shap' is not known. Allowed: none, dtype"),
    (
        "plan: shape",
        "plan: shape since 1.3",
        r":9: .*'shape since 1.3' is not known. Allowed: none",
    ),
    (
        "mean) !key",
        "mean) !key !cap(epilog)",
        r":8: .*capability 'epilog' is not known. Allowed: epi",
    ),
    (
        "mean) !key",
        "mean) !key !cap(epilogue from sum)",
        r":8: .*'!cap\(... from sum\)' names no value",
    ),
    ("flag: bool", "flag: bool !class", r":8: .*'!class' is for scalar, f64 and i64, not 'bool'"),
    ("in: in,", "in: in !cap(epilogue),", r":7: .*only an input of mode 'in\?' may need a capab"),
    (
        "in: in,",
        'in: "in? !cap(epilogue)",',
        r":3: .*an input that needs a capability comes after the others",
    ),
    ("plan: shape", "plan: shape\n    reserved: yes", r":10: .*'yes' is not known. Allowed: true"),
    ("plan: shape", "plan: shap", r"did you mean 'shape'"),
    ("{out: out,", "{out: outt,", r":6: .*output 'out': mode 'outt' is not known. Allowed: out,"),
    ("out? bool", "out? boolean", r":6: .*dtype class 'boolean' is not known. Allowed: bool"),
    ("in: in,", "int: in,", r":7: .*input: 'int' is reserved"),
    ("{in: in,", "{out: in,", r":3: kind 'thing': operand 'out' is there twice"),
    ("flag: bool", "flag: boolean", r":8: .*attribute 'flag': type 'boolean' is not known"),
    ("i64[3]", "i64[0]", r":8: .*type 'i64\[0\]' is not known"),
    ("i64[3]", "bool[3]", r":8: .*type 'bool\[3\]' is not known"),
    ("none, mean", "none, none", r":8: .*an enum value is there twice"),
    ("plan: shape", "plan: shape\n    plan: none", r":10: kind: key 'plan' is there twice"),
    ("plan: shape", "plan: shape\n    codes: [a, a]", r":10: .*code 'a' is there twice"),
    ("plan: shape", "plan: shape\n    caps: [fast]", r":10: .*'fast' is not known. Allowed: acc"),
    ("plan: shape", "plan: shape\n    decompose: [thingy]", r":3: .*'thingy', which is no kind"),
    ("plan: shape", "plan: shape\n    level: fused", r":3: .*a fused kind needs key 'decompose'"),
    ("out: out, extra", "out: fill, extra", r":3: .*mode 'fill' needs an output of mode 'count'"),
    ("version: 1", "version: 2", r":1: key 'version': '2' is not known. Allowed: 1"),
    ("version: 1", "version: 1\nmore: 2", r":2: key 'more' is not known. Allowed: version, kinds"),
    ("version: 1\n", "", r":1: key 'version' is missing"),
    ("outs: {", "outs: {{", r":7: not YAML"),
    ("outs: {", "outs: [a]\n    x: {", r":6: .*expected a mapping"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), WRONG)
def test_refuses(tmp_path, old, new, complaint):
    assert old in GOOD
    result = generate(tmp_path, GOOD.replace(old, new, 1))
    assert result.returncode == 1
    assert re.search(
        r"kinds\.yaml" + complaint if complaint[0] == ":" else complaint, result.stderr
    )
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_all_problems_are_named_at_once(tmp_path):
    text = GOOD.replace("slot: 1", "slot: 999").replace("plan: shape", "plan: never")
    lines = generate(tmp_path, text).stderr.splitlines()
    assert len(lines) == 2


def test_kinds_do_not_collide(tmp_path):
    second = GOOD.split("kinds:\n")[1]
    result = generate(tmp_path, GOOD + second)
    assert "slot 1 belongs to 'thing'. Free: 2" in result.stderr
    assert "the name is there twice" in result.stderr
    clash = GOOD + second.replace("thing", "thing_mode").replace("slot: 1", "slot: 2").replace(
        "plan: shape", "plan: shape\n    codes: [mean]"
    )
    result = generate(tmp_path, clash)
    assert "NPU_THING_MODE_MEAN is also made by kind 'thing'" in result.stderr


@pytest.mark.parametrize("text", ["", "- a\n", "version: 1\nkinds: 3\n", "\tx"])
def test_no_traceback_for_what_is_no_kinds_file(tmp_path, text):
    result = generate(tmp_path, text)
    assert result.returncode == 1
    assert "kinds.yaml:1" in result.stderr or "kinds.yaml:2" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_named(tmp_path):
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "--kinds", str(tmp_path / "no.yaml"), "--out", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    assert "no.yaml: cannot be read" in result.stderr


@pytest.mark.parametrize(
    ("compiler", "standard", "suffix"), [("cc", "c11", ".c"), ("c++", "c++17", ".cpp")]
)
def test_headers_compile_strictly(tmp_path, compiler, standard, suffix):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    result = generate(tmp_path, (ROOT / "ops" / "kinds.yaml").read_text())
    assert result.returncode == 0, result.stderr
    source = tmp_path / f"use{suffix}"
    source.write_text('#include "npu/validate.h"\nextern int used;\nint used = NPU_KIND_COUNT;\n')
    result = subprocess.run(
        [
            compiler, f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror",
            "-fsyntax-only", f"-I{ROOT}/include", f"-I{tmp_path}/out/include", str(source),
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr


def test_the_kinds_of_the_contract_are_there(tmp_path):
    result = generate(tmp_path, (ROOT / "ops" / "kinds.yaml").read_text())
    assert result.returncode == 0, result.stderr
    header = (tmp_path / "out/include/npu/kinds.h").read_text()
    slots = dict(re.findall(r"#define NPU_KIND_(\w+) (\d+)u\n", header))
    for name, slot in {
        "COPY": 1, "FILL": 2, "RANDOM": 3, "RANDPERM": 4, "MULTINOMIAL": 5, "DROPOUT": 6,
        "CAT": 7, "UNARY": 24, "REDUCE": 32, "SORT": 40, "GATHER": 52, "GEMM": 76, "CONV": 86,
        "POOL": 92, "SOFTMAX": 110, "NLL": 130, "ATTENTION": 154, "OPTIMIZER": 162, "FFT": 170,
    }.items():  # fmt: skip
        assert slots[name] == str(slot)
