# SPDX-License-Identifier: Apache-2.0
"""YAML of custom operators: what is wrong is said with file and line."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "codegen"))

import custom
from kinds_model import load_kinds
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


def test_a_refused_operator_names_its_reason_and_what_to_use(tmp_path):
    text = GOOD + '  - func: npu_b(Tensor x) -> Tensor\n    doc: "y."\n    refused: "secret"\n'
    python = '@implements("npu_a")\ndef f(x):\n    return x\n'
    (tmp_path / "plain").mkdir()
    _, b = load(tmp_path / "plain", text, python)
    assert (b.refused, b.nearest) == ("secret", "")
    (tmp_path / "named").mkdir()
    _, b = load(tmp_path / "named", text + "    nearest: npu_a\n", python)
    assert (b.refused, b.nearest) == ("secret", "npu_a")


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
        (
            GOOD + '    refused: "secret"\n',
            '@implements("npu_a")\ndef f():\n    pass\n',
            "a.yaml:3: 'npu_a' is implemented in fam.py. Remove the key 'refused'",
        ),
        (
            GOOD + '    refused: "secret"\n    nearest: npu_b\n',
            "",
            "a.yaml:3: key 'nearest': 'npu_b' is no implemented operator",
        ),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, python, said):
    with pytest.raises(YamlError) as caught:
        load(tmp_path, text, python)
    assert said in str(caught.value)


ROTATE = """namespace: npu
custom:
  - func: npu_turn(Tensor x, Tensor? by=None, str mode='half') -> (Tensor, Tensor)
    doc: "x."
    kind: rotary
    code: {mode: {half: half, quarter: quarter}}
    attempt: turn
    arguments: [x]
    absent: [by]
    gradient: {operator: npu_turn_back, arguments: {grad: grad0, size: x.size(1)}, of: [x]}
  - func: npu_turn_back(Tensor grad, Tensor x, int size, float far=1.0) -> Tensor
    doc: "x."
    attempt: turn_back
    boxed: true
"""
TURN = '@implements("npu_turn", "npu_turn_back")\ndef f():\n    pass\n'


def load_kernels(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "fam.py").write_text(TURN)
    kinds = load_kinds(Path(__file__).resolve().parents[2] / "ops/kinds.yaml")
    return custom.load([tmp_path / "a.yaml"], tmp_path / "ops", kinds)


def test_a_row_makes_kernel_and_gradient(tmp_path):
    operators = load_kernels(tmp_path, ROTATE)
    tests = tmp_path / "tested.txt"
    tests.write_text("# names\nnpu_turn f32 a.py\n")
    made = custom.emit(operators, tests)
    text = " ".join(made["custom_operators.cpp"].split())
    assert [o.kinds for o in operators] == [["rotary"], []]
    # The code goes by an argument; what the attempt does not take, and what is declined, is composed.
    assert '{"npu::npu_turn", NPU_KIND_ROTARY, NPU_ROTARY_QUARTER}' in text
    assert "if (by.has_value()) { why = NPU_REASON_ARGUMENTS; }" in text
    assert "why = npu::fused::turn(site, outputs, x);" in text
    assert "return op.redispatch(fused::kComposition, x, by, mode);" in text
    # Arguments of the gradient by name, by the row, and by their defaults.
    assert (
        "{{From::kGrad, 0}, {From::kArgument, 0}, {From::kSize, 0, 1}, {}}, {0}, 1, nullptr}"
        in text
    )
    assert 'kKernel_npu_turn{&install_npu_turn, "npu_turn_back"}' in text
    assert (
        "npu_reason turn_back(const npu::custom::Arguments& args, torch::jit::Stack& results);"
        in made["attempts/a.h"]
    )


@pytest.mark.parametrize(
    "before, after, said",
    [
        ("kind: rotary", "kind: rotari", "a.yaml:5: key 'custom': 'npu_turn': key 'kind': 'rotari' is no kind"),
        ("quarter: quarter", "quarter: third", "a.yaml:6: key 'custom': 'npu_turn': key 'code': 'third' is no code"),
        ("absent: [by]", "absent: [be]", "a.yaml:9: key 'custom': 'npu_turn': key 'absent': no argument 'be'"),
        ("    attempt: turn\n", "", "a.yaml:5: key 'custom': 'npu_turn': key 'kind' needs key 'attempt'"),
        ("attempt: turn\n", "attempt: a b\n", "key 'attempt': 'a b' is not a name"),
        ("npu_turn_back, arg", "npu_turn_bak, arg", "a.yaml:10: key 'gradient': no operator 'npu_turn_bak'"),
        ("grad: grad0", "grab: grad0", "a.yaml:10: key 'gradient': npu_turn_back has no argument 'grab'"),
        ("size: x.size(1)", "size: y.size(1)", "a.yaml:10: key 'custom': 'npu_turn': key 'gradient': 'y.size(1)' is no"),
        ("of: [x]}", "of: [z]}", "key 'of': no argument 'z'"),
        ("operator: npu_turn_back, ", "", "give key 'operator' or key 'function'"),
        ("of: [x]}", "off: [x]}", "key 'gradient': key 'off' is not known"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_kernel_is_said(tmp_path, before, after, said):
    assert ROTATE.count(before) == 1
    with pytest.raises(YamlError) as caught:
        load_kernels(tmp_path, ROTATE.replace(before, after))
    assert said in str(caught.value)
