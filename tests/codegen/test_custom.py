# SPDX-License-Identifier: Apache-2.0
"""YAML of custom operators: what is wrong is said with file and line."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "codegen"))

import custom
from yaml_reader import YamlError

GOOD = 'namespace: npu\ncustom:\n  - func: npu_a(Tensor x) -> Tensor\n    doc: "x."\n'


def load(tmp_path, text, python=""):
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "fam.py").write_text(python)
    return custom.load([tmp_path / "a.yaml"], tmp_path / "ops")


def test_an_operator_is_implemented_where_a_function_says_so(tmp_path):
    text = GOOD + "  - func: npu_a.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)\n"
    text += '  - func: npu_b(Tensor x) -> Tensor\n    doc: "y."\n'
    a, b = load(tmp_path, text, '@implements("npu_a")\ndef f(x):\n    return x\n')
    # The results that its `.out` is given are written from those of the function.
    assert (a.module, [o.implemented for o in a.overloads]) == ("fam", [True, True])
    assert (b.module, b.nearest) == ("", "npu_a")


@pytest.mark.parametrize(
    "text, python, said",
    [
        (GOOD + "    docs: z\n", "", "a.yaml:5: key 'custom': key 'docs' is not known"),
        (GOOD + "extra: 1\n", "", "a.yaml:5: key 'extra' is not known. Allowed: namespace, custom"),
        (GOOD + GOOD.split("custom:\n")[1], "", "a.yaml:5: 'npu_a' is there twice, first at"),
        (
            GOOD.replace("Tensor x", "Tensr x"),
            "",
            "a.yaml:3: key 'func': PyTorch cannot read the schema",
        ),
        (GOOD.replace('    doc: "x."\n', ""), "", "a.yaml:3: 'npu_a': key 'doc' is missing"),
        (GOOD.replace("npu\n", "npx\n", 1), "", "a.yaml:1: key 'namespace': 'npx' is not known"),
        (
            GOOD,
            '@implements("npu_aa")\ndef f():\n    pass\n',
            "fam.py:1: no operator 'npu::npu_aa' in ops/npu (did you mean 'npu_a'?)",
        ),
        (
            GOOD,
            '@implements("npu_a", "npu_a")\ndef f():\n    pass\n',
            "fam.py:1: 'npu_a' is implemented twice",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, python, said):
    with pytest.raises(YamlError) as caught:
        load(tmp_path, text, python)
    assert said in str(caught.value)
