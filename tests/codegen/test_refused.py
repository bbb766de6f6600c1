# SPDX-License-Identifier: Apache-2.0
"""Wrong operator YAML is refused with file, line, key, reason and the nearest right name."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What is wrong, the YAML after its two head lines, and the problems in order: line and what the
# message must contain.
ONE_FILE = {
    "unknown overload": (
        "supported:\n  - add.Tensor\n  - add.Scaler\n",
        [(5, "key 'supported'", "'add.Scaler'", "did you mean 'add.Scalar'?")],
    ),
    "unknown operator": (
        "supported:\n  - maxpool2d\n",
        [(4, "'maxpool2d'", "PyTorch has no such operator", "'max_pool2d'")],
    ),
    "operator unlike any other": (
        "supported:\n  - qqqqqqqqqq\n",
        [(4, "'qqqqqqqqqq': PyTorch has no such operator.")],
    ),
    "list without dashes": (
        "supported:     # as the guide prints it\n"
        "  add.Tensor\n  add_.Tensor\n  add.out\n  add.Scaler\n  add_.Scaler\n",
        [
            (4, "key 'supported'", "expected a list", "'- add.Tensor'"),
            (7, "'add.Scaler'", "'add.Scalar'"),
            (8, "'add_.Scaler'", "'add_.Scalar'"),
        ],
    ),
    "names in one text": (
        "supported: add.Tensor, add.Scaler\n",
        [(3, "expected a list"), (3, "'add.Scaler'")],
    ),
    "mapping without dash": (
        "supported:\n  func: add.out\n  kind: binary\n",
        [(4, "key 'supported'", "found a mapping", "'- func:'")],
    ),
    "mapping of names": (
        "autograd:\n  add.Tensor:\n",
        [(4, "key 'autograd'", "found a mapping", "'- add.Tensor'")],
    ),
    "unknown top key": (
        "suported:\n  - add.Tensor\n",
        [(3, "key 'suported' is not known", "did you mean 'supported'?")],
    ),
    "unknown key of an entry": (
        "supported:\n  - func: add.out\n    kinds: binary\n",
        [(5, "key 'supported': key 'kinds' is not known", "did you mean 'kind'?")],
    ),
    "unknown key of a custom entry": (
        "custom:\n  - func: npu_x(Tensor self) -> Tensor\n    variant: method\n",
        [(5, "key 'variant' is not known", "did you mean 'variants'?")],
    ),
    "key twice": (
        "supported:\n  - func: add.out\n    kind: binary\n    kind: unary\n    attrs: {a: alpha}\n",
        [(6, "key 'kind' is there twice")],
    ),
    "entry without func": (
        "supported:\n  - kind: unary\n",
        [(4, "an entry has no key 'func'")],
    ),
    "entry that is a list": (
        "supported:\n  - [add.out, sub.out]\n",
        [(4, "found a list")],
    ),
    "empty entry": (
        "supported:\n  -\n",
        [(4, "an empty entry")],
    ),
    "number as name": (
        "supported:\n  - 12\n",
        [(4, "'12': PyTorch has no such operator")],
    ),
    "name twice": (
        "supported:\n  - add.Tensor\n  - add.Tensor\n",
        [(5, "aten::add.Tensor is already at pack0.yaml:4", "Keep one")],
    ),
    "name twice through its group": (
        "supported:\n  - erfinv\n  - func: erfinv.out\n    kind: unary\n",
        [(5, "aten::erfinv is already at pack0.yaml:4")],
    ),
    "half a group": (
        "supported:\n  - add.Tensor\nautograd:\n  - add.out\n",
        [(6, "key 'autograd': 'add.out' belongs together with 'add.Tensor' (pack0.yaml:4")],
    ),
    "composite": (
        "supported:\n  - slow_conv3d\n",
        [(4, "PyTorch composes it of other operators", "Move it to 'autograd'")],
    ),
    "schema that is not PyTorch's": (
        "supported:\n  - func: relu(Tensor self, int n) -> Tensor\n",
        [(4, "PyTorch's schema is 'relu(Tensor self) -> Tensor'", "Write only 'relu'")],
    ),
    "custom without schema": (
        "custom:\n  - npu_dtype_cast\n",
        [(4, "key 'custom'", "needs its whole schema")],
    ),
    "custom schema that does not parse": (
        "custom_autograd:\n"
        "  - func: npu_convolution(Tensor input, Tensor weight, Tensor? bias, ...) -> Tensor\n",
        [(4, "key 'custom_autograd'", "not a schema", "'...'")],
    ),
    "custom schema without result": (
        "custom:\n  - func: npu_x(Tensor self)\n",
        [(4, "not a schema")],
    ),
    "custom schema of an unknown type": (
        "custom:\n  - func: npu_x(Tensr self) -> Tensor\n",
        [(4, "not a schema", "Tensr")],
    ),
    "custom operator of PyTorch's namespace": (
        "custom:\n  - func: aten::x(Tensor self) -> Tensor\n",
        [(4, "namespace 'aten' is not yours")],
    ),
    "method of another namespace": (
        "custom:\n  - func: mine::x(Tensor self) -> Tensor\n    variants: method\n",
        [(5, "key 'variants' is for operators of namespace npu")],
    ),
    "method without self": (
        "custom:\n  - func: npu_x(Tensor input) -> Tensor\n    variants: function, method\n",
        [(5, "key 'variants'", "'self'")],
    ),
    "unknown variant": (
        "custom:\n  - func: npu_x(Tensor self) -> Tensor\n    variants: functions\n",
        [(5, "'functions' is not known", "did you mean 'function'?")],
    ),
    "unknown kind": (
        "supported:\n  - func: erfinv.out\n    kind: unari\n",
        [(5, "key 'kind': 'unari' is no kind", "did you mean 'unary'?")],
    ),
    "unknown code": (
        "supported:\n  - func: erfinv.out\n    kind: unary\n    code: erfin\n",
        [(6, "'erfin' is no code of kind 'unary'", "did you mean 'erfinv'?")],
    ),
    "no code of that name": (
        "supported:\n  - func: atan2.out\n    kind: compare\n",
        [(5, "kind 'compare' has no code 'atan2'", "Name one with key 'code'")],
    ),
    "code of a kind without codes": (
        "supported:\n  - func: cat.out\n    kind: cat\n    code: cat\n",
        [(6, "kind 'cat' has no codes")],
    ),
    "too many tensors": (
        "supported:\n  - func: atan2.out\n    kind: unary\n    code: abs\n",
        [(5, "argument 'other' of atan2.out is a tensor", "does not fit")],
    ),
    "too few tensors": (
        "supported:\n  - func: erfinv.out\n    kind: binary\n    code: mul\n",
        [(5, "kind 'binary' needs input 'other'")],
    ),
    "too many results": (
        "supported:\n  - func: sort.values_stable\n    kind: flip\n    ignore: [stable, descending, dim]\n",
        [(5, "returns 2 results", "room for 1")],
    ),
    "argument that goes nowhere": (
        "supported:\n  - func: add.out\n    kind: binary\n",
        [(5, "argument 'alpha' (Scalar) of add.out goes nowhere", "attrs: {a: alpha}")],
    ),
    "attribute of another type": (
        "supported:\n"
        "  - func: sum.IntList_out\n    kind: reduce\n    attrs: {p: dim}\n    ignore: [dtype]\n",
        [(6, "attribute 'p' of kind 'reduce' holds float", "'dim' of sum.IntList_out is int[1]?")],
    ),
    "unknown attribute": (
        "supported:\n  - func: add.out\n    kind: binary\n    attrs: {alpha: alpha}\n",
        [(6, "kind 'binary' has no attribute 'alpha'")],
    ),
    "attribute from an unknown argument": (
        "supported:\n  - func: add.out\n    kind: binary\n    attrs: {a: alfa}\n",
        [(6, "'alfa' is neither an argument of add.out nor", "'alpha'")],
    ),
    "unknown operand": (
        "supported:\n  - func: erfinv.out\n    kind: unary\n    operands: {inn: self}\n",
        [(6, "kind 'unary' has no operand 'inn'", "did you mean 'in'?")],
    ),
    "operand of another type": (
        "supported:\n  - func: cumsum.out\n    kind: scan\n    operands: {in: dim}\n    ignore: [dtype]\n",
        [(6, "operand 'in' of kind 'scan' takes Tensor", "'dim' of cumsum.out is int")],
    ),
    "unknown ignored argument": (
        "supported:\n  - func: erfinv.out\n    kind: unary\n    ignore: [dtyp]\n",
        [(6, "erfinv.out has no argument 'dtyp'")],
    ),
    "mapping without kind": (
        "supported:\n  - func: add.out\n    attrs: {a: alpha}\n",
        [(5, "key 'attrs' needs key 'kind'")],
    ),
    "kind in autograd": (
        "autograd:\n  - func: erfinv.out\n    kind: unary\n",
        [(5, "key 'kind' belongs to 'supported'")],
    ),
    "impl of a group that is not structured": (
        "supported:\n  - func: var.correction\n    kind: reduce\n    impl: var\n",
        [(6, "key 'impl' is for structured groups")],
    ),
    "impl without kind": (
        "supported:\n  - func: erfinv.out\n    impl: erfinv_out\n",
        [(5, "key 'impl' needs key 'kind'")],
    ),
    "impl with attributes": (
        "supported:\n  - func: amax.out\n    kind: reduce\n    code: max\n    impl: f\n    attrs: {dims: dim}\n",
        [(8, "key 'attrs' is the function's own business")],
    ),
    "impl with an unknown code": (
        "supported:\n  - func: amax.out\n    kind: reduce\n    impl: f\n",
        [(5, "kind 'reduce' has no code 'amax'")],
    ),
    "impl that is no name": (
        "supported:\n  - func: erfinv.out\n    kind: unary\n    impl: erf inv\n",
        [(6, "'erf inv' is not a C++ function name")],
    ),
    "attempt without kind": (
        "supported:\n  - func: glu\n    attempt: glu\n",
        [(5, "key 'attempt' needs key 'kind'")],
    ),
    "attempt and impl": (
        "supported:\n  - func: amax.out\n    kind: reduce\n    code: max\n    impl: f\n    attempt: g\n",
        [(8, "both 'impl' and 'attempt'")],
    ),
    "attempt of a kind that lacks the code": (
        "supported:\n  - func: glu\n    kind: unary\n    attempt: glu\n",
        [(5, "kind 'unary' has no code 'glu'", "did you mean 'gelu'?")],
    ),
    "attempt with operands": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n    operands: {in: self}\n",
        [(7, "key 'operands' is the function's own business")],
    ),
    "attempt that is no name": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu<2>\n",
        [(6, "'glu<2>' is not a C++ function name")],
    ),
    "attempt twice": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n"
        "  - func: glu.out\n    kind: binary\n    attempt: glu\n",
        [(7, "aten::glu.out is already at pack0.yaml:4"), (7, "aten::glu is already")],
    ),
    "composite beside impl": (
        "supported:\n  - func: amax.out\n    kind: reduce\n    code: max\n    impl: f\n"
        "    otherwise: composite\n",
        [(8, "key 'otherwise' belongs beside 'attempt'")],
    ),
    "forms beside impl": (
        "supported:\n  - func: amax.out\n    kind: reduce\n    code: max\n    impl: f\n"
        "    forms: named\n",
        [(8, "key 'forms' belongs beside 'attempt'")],
    ),
    "argument that there is none of": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n    arguments: [slef]\n",
        [(7, "key 'arguments': no argument 'slef'", "did you mean 'self'?")],
    ),
    "site of an unknown code": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n    sites: {more: unary.exq}\n",
        [(7, "'unary.exq' is no kind of ops/kinds.yaml", "unary.exp")],
    ),
    "site with the name of an argument": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n    sites: {dim: unary.exp}\n",
        [(7, "key 'sites': 'dim' is an argument")],
    ),
    "constant that is a list": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n    with: {n: [1]}\n",
        [(7, "key 'with': expected {name: number}")],
    ),
    "constant without a function": (
        "supported:\n  - func: erfinv.out\n    kind: unary\n    with: {n: 1}\n",
        [(6, "key 'with' belongs beside 'impl' or 'attempt'")],
    ),
    "wants of no tensor": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n    wants: [slef]\n",
        [(7, "no tensor argument 'slef'", "did you mean 'self'?")],
    ),
    "check with an unknown reason": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n    check: {dtyp: {is_real: self}}\n",
        [(7, "key 'check': 'dtyp' is not known", "did you mean 'dtype'?")],
    ),
    "check that is an expression": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n"
        "    check: {dtype: self.dim() > 0}\n",
        [(7, "key 'check': expected {predicate: [arguments]}", "src/aten/ops/predicates.h")],
    ),
    "expression for a predicate": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n"
        "    anyway: {'!is_real': self}\n",
        [(7, "key 'anyway': '!is_real' is not the name of a predicate")],
    ),
    "expression for an argument of a predicate": (
        "supported:\n  - func: glu\n    kind: binary\n    attempt: glu\n"
        "    check: {size: {is_positive: [slef]}}\n",
        [(7, "key 'check': no argument 'slef'", "did you mean 'self'?")],
    ),
    "unknown rule": (
        "supported:\n  - func: abs.out\n    kind: unary\n    rule: unaries\n",
        [(6, "key 'rule': 'unaries' is not known", "did you mean 'unary'?")],
    ),
    "array attribute from an unknown argument": (
        "supported:\n  - func: upsample_nearest1d.out\n    kind: upsample\n    code: nearest\n"
        "    attrs: {scales: [scale]}\n    ignore: [output_size, scales]\n",
        [(7, "upsample_nearest1d.out has no argument 'scale'", "did you mean 'scales'?")],
    ),
    "foreach of an unknown name": (
        "foreach:\n  - names: [adds]\n    kind: binary\n    code: add\n    overloads: [List]\n",
        [(7, "key 'foreach': '_foreach_adds.List'", "did you mean '_foreach_add.List'?")],
    ),
    "foreach of an unknown code": (
        "foreach:\n  - names: [clamp_min]\n    kind: binary\n",
        [(4, "'clamp_min' is no code of kind 'binary'", "Name one with key 'code'")],
    ),
    "foreach without a kind": (
        "foreach:\n  - names: [add]\n",
        [(4, "key 'foreach': an entry has no key 'kind'")],
    ),
    "foreach overload twice": (
        "foreach:\n  - names: [abs]\n    kind: unary\n  - names: [abs]\n    kind: unary\n",
        [(6, "aten::_foreach_abs is already at"), (6, "aten::_foreach_abs_ is already at")],
    ),
    "foreach condition of another overload": (
        "foreach:\n  - names: [add]\n    kind: binary\n    overloads: [List]\n    if: {Lists: {is_one: alpha}}\n",
        [(7, "key 'if': no overload 'Lists'", "did you mean 'List'?")],
    ),
    "by hand, of no operator": (
        "by_hand:\n  - copi_\n",
        [(4, "key 'by_hand': 'copi_': PyTorch has no such operator", "'copy_'")],
    ),
    "by hand and generated": (
        "supported:\n  - func: erfinv.out\n    kind: unary\nby_hand:\n  - erfinv_\n",
        [(7, "aten::erfinv_ is already at pack0.yaml:4")],
    ),
    "unknown kind in uses": (
        "supported:\n  - func: cat.out\n    uses: [cats]\n",
        [(5, "'cats' is no kind", "did you mean 'cat'?")],
    ),
    "scalar_by_value that is no truth": (
        "scalar_by_value: maybe\n",
        [(3, "key 'scalar_by_value': 'maybe' is not known")],
    ),
    "not YAML": (
        "supported: [\n",
        [(4, "not YAML")],
    ),
}


def check(problems: list[str], expected, file: str = "pack0.yaml") -> None:
    assert len(problems) == len(expected), problems
    for problem, (line, *parts) in zip(problems, expected, strict=True):
        assert problem.startswith(f"{file}:{line}: "), problem
        for part in parts:
            assert part in problem, problem


@pytest.mark.parametrize("name", ONE_FILE)
def test_refused(name, refused):
    text, expected = ONE_FILE[name]
    check(refused(text), expected)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("cpp_namespace: a\n", [(1, "key 'backend' is missing")]),
        ("backend: NPU\n", [(1, "key 'cpp_namespace' is missing")]),
        ("backend: CUDA\ncpp_namespace: a\n", [(1, "key 'backend': 'CUDA' is not known")]),
        ("backend: NPU\ncpp_namespace: a-b\n", [(2, "'a-b' is not a C++ namespace")]),
        ("backend: NPU\ncpp_namespace: [a]\n", [(2, "expected plain text"), (2, "''")]),
        ("- backend\n", [(1, "expected a mapping")]),
        ("", [(1, "the file is empty")]),
    ],
)
def test_head(head, expected, refused):
    check(refused("", head=head), expected)


def test_duplicate_across_files(refused):
    problems = refused("supported:\n  - add.Tensor\n", "autograd:\n  - add.Tensor\n")
    assert any(
        p.startswith("pack1.yaml:4: ") and "already at pack0.yaml:4" in p for p in problems
    ), problems


def test_all_problems_at_once(refused):
    problems = refused(
        "suported: []\nsupported:\n  - add.Scaler\n  - func: erfinv.out\n    kind: unari\n",
        "custom:\n  - npu_x\n",
    )
    assert [p.split(" ")[0] for p in problems] == [
        "pack0.yaml:3:",
        "pack0.yaml:5:",
        "pack0.yaml:7:",
        "pack1.yaml:4:",
    ]


def generate(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "codegen/aten.py"), "--kinds", str(ROOT / "ops/kinds.yaml")]
        + [str(a) for a in arguments],
        capture_output=True,
        text=True,
    )


def test_command_line_gives_no_traceback(tmp_path):
    (tmp_path / "ops.yaml").write_text("supported:\n  add.Scaler\n", encoding="utf-8")
    done = generate("--ops", tmp_path / "ops.yaml", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "did you mean 'add.Scalar'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((tmp_path / "out").glob("*.cpp")), "nothing is made of a wrong file"
    for arguments in (("--ops", tmp_path / "none.yaml"), ("--ops", tmp_path, "--torch-yaml", "no")):
        done = generate(*arguments, "--out", tmp_path / "out")
        assert done.returncode == 1
        assert "No such file" in done.stderr and "Traceback" not in done.stderr


def test_adapters_are_for_the_own_tree(tmp_path):
    (tmp_path / "ops.yaml").write_text(
        "backend: NPU\ncpp_namespace: a\nsupported:\n  - func: erfinv.out\n    kind: unary\n",
        encoding="utf-8",
    )
    done = generate("--ops", tmp_path / "ops.yaml", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "ops.yaml:4: key 'supported': 'erfinv.out': key 'kind' makes an adapter" in done.stderr
    done = generate("--adapters", "--ops", tmp_path / "ops.yaml", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr


OWN = "backend: NPU\ncpp_namespace: a\nsupported:\n"


@pytest.mark.parametrize(
    ("entry", "parts"),
    [
        ("  - func: relu\n    kind: unary\n", ("nothing can be generated", "key 'rule'")),
        ("  - func: flip\n    kind: flip\n", ("nothing can be generated", "key 'attempt'")),
        (
            "  - func: flip\n    kind: flip\n    attempt: flipp\n",
            ("no function 'npu_reason flipp(", "did you mean 'flip'?"),
        ),
    ],
)
def test_entry_without_a_way(entry, parts, tmp_path):
    """Nothing is dropped silently: neither a key without an emitter nor a function that is not written."""
    (tmp_path / "ops.yaml").write_text(OWN + entry, encoding="utf-8")
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.cpp").write_text("npu_reason flip(\n    int) {}\n", encoding="utf-8")
    done = generate(
        "--adapters", "--ops", tmp_path / "ops.yaml", "--out", tmp_path / "out",
        "--sources", tmp_path / "src",
    )  # fmt: skip
    assert done.returncode == 1
    assert "ops.yaml:4: key 'supported'" in done.stderr, done.stderr
    assert all(part in done.stderr for part in parts), done.stderr
    assert "Traceback" not in done.stderr
