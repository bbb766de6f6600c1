# SPDX-License-Identifier: Apache-2.0
"""A formula stands once in the product as a composition, at most once in a driver as a kernel, and once in the tests as
the float64 oracle. Each check is a function of a tree, so that it is seen to fail on a tree that breaks the rule."""

import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))

import custom  # noqa: E402
from kinds_model import load_kinds  # noqa: E402
from yaml_reader import YamlError  # noqa: E402

# What adapters may call of PyTorch: how operands come to be, and the kernels of rung 4 that one is handed to.
OPERANDS = {
    "arange", "cat", "cumsum", "empty", "full", "tensor", "zeros", "zeros_like",
    "_fused_adamw", "_int_mm", "addmm_cpu_dispatch", "mm_cpu_dispatch",
}  # fmt: skip
# Arithmetic by methods of tensors: between the blocks of attention, beside a kind that lacks an operand, in gradients.
METHODS = {
    "fusion_attention.cpp": {"div_", "exp_", "mul", "mul_", "sub", "sub_", "sum"},
    "gated.cpp": {"neg"},
    "quantised.cpp": {"add_", "clamp_"},
    "rms.cpp": {"add"},
}
ARITHMETIC = re.compile(
    r"\.((?:abs|add|bmm|clamp|cos|div|erf|exp|log|matmul|maximum|mean|mm|mul|neg|pow|reciprocal|rsqrt|sigmoid|silu|sin|"
    r"softmax|sqrt|square|sub|sum|tanh|var)_?)\("
)


@pytest.fixture(autouse=True)
def torch_without_the_plugin(monkeypatch):
    """The generator imports torch to read schemas."""
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")


def text_of(file: Path) -> str:
    return file.read_text(encoding="utf-8")


def operators(root: Path):
    return custom.load(
        sorted((root / "ops/npu").glob("*.yaml")),
        root / "python/torch_npu/ops",
        load_kinds(root / "ops/kinds.yaml"),
    )


def kernels_stand_on_a_composition(root: Path):
    rows = [(o, v) for o in operators(root) for v in o.overloads if v.kernel]
    assert len(rows) > 20
    assert [v.name for o, v in rows if not (o.module and v.implemented)] == []


def adapters_compute_nothing(root: Path):
    for file in sorted((root / "src/aten/ops/fused").glob("*")):
        text = text_of(file)
        called = set(re.findall(r"#include <ATen/ops/(\w+)\.h>", text))
        assert called <= OPERANDS, f"{file.name}: leave {called - OPERANDS} to the composition"
        used = set(ARITHMETIC.findall(text))
        assert used == METHODS.get(file.name, set()), f"{file.name}: {used}"


def a_driver_has_one_kernel_for_a_kind(root: Path):
    for kernels in ("drivers/host/kernels", "drivers/cuda/kernels"):
        rows = Counter(
            kind
            for file in sorted((root / kernels).rglob("*.c*"))
            for kind in re.findall(r"^\s*\{NPU_KIND_(\w+),\s", text_of(file), re.M)
        )
        assert len(rows) > 15
        assert [kind for kind, n in rows.items() if n > 1] == []


def kinds_of_rows_have_no_decomposition_in_cpp(root: Path):
    composed = re.findall(r"\{NPU_KIND_(\w+),", text_of(root / "src/compose/compose.cpp"))
    assert composed
    assert {kind.upper() for o in operators(root) for kind in o.kinds} & set(composed) == set()


def no_gradient_is_registered_beside_its_row(root: Path):
    """One node of autograd serves every row (src/aten/custom/gradient.cpp)."""
    for folder in ("custom", "ops/fused"):
        for file in sorted((root / "src/aten" / folder).glob("*.cpp")):
            nodes = re.findall(r"autograd::Function<(\w+)>", text_of(file))
            assert nodes == (["Recorded"] if file.name == "gradient.cpp" else []), file


def an_operator_has_its_oracles_in_one_file(root: Path):
    files = {}
    for file in sorted((root / "tests/npu_ops").glob("cases_*.py")):
        for name in set(re.findall(r'^\s*add\(\s*"(\w+)"', text_of(file), re.M)):
            files.setdefault(name, []).append(file.name)
    assert len(files) > 100
    # Adaptive sampling is a formula of its own.
    assert [n for n, found in files.items() if len(found) > 1] == ["npu_roi_align"]


CHECKS = (
    kernels_stand_on_a_composition,
    adapters_compute_nothing,
    a_driver_has_one_kernel_for_a_kind,
    kinds_of_rows_have_no_decomposition_in_cpp,
    no_gradient_is_registered_beside_its_row,
    an_operator_has_its_oracles_in_one_file,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
def test_this_tree(check):
    check(ROOT)


# What breaks the rule: the check, a file, a text in it, what stands there then.
BROKEN = {
    "a composition is missing": (
        kernels_stand_on_a_composition, "python/torch_npu/ops/activation.py",
        '@implements("npu_swiglu")\n', "",
    ),
    "a second composition": (
        kernels_stand_on_a_composition, "python/torch_npu/ops/loss.py",
        "import torch\n", 'import torch\n@implements("npu_swiglu")\ndef again(): ...\n',
    ),
    "a formula of functions in an adapter": (
        adapters_compute_nothing, "src/aten/ops/fused/gated.cpp",
        "#include <ATen/ops/cat.h>", "#include <ATen/ops/silu.h>",
    ),
    "a formula of methods in an adapter": (
        adapters_compute_nothing, "src/aten/ops/fused/gated.cpp",
        "return run<build::swiglu>", "input.sigmoid(); return run<build::swiglu>",
    ),
    "a second kernel of a driver": (
        a_driver_has_one_kernel_for_a_kind, "drivers/host/kernels/fused.cpp",
        "    {NPU_KIND_ROTARY,", "    {NPU_KIND_SOFTMAX, a},\n    {NPU_KIND_ROTARY,",
    ),
    "a decomposition in C++": (
        kinds_of_rows_have_no_decomposition_in_cpp, "src/compose/compose.cpp",
        "{NPU_KIND_FLIP,", "{NPU_KIND_SWIGLU, swiglu}, {NPU_KIND_FLIP,",
    ),
    "a node of autograd of its own": (
        no_gradient_is_registered_beside_its_row, "src/aten/ops/fused/gated.cpp",
        "npu_reason swiglu(", "struct S : torch::autograd::Function<S> {};\nnpu_reason swiglu(",
    ),
    "a second oracle": (
        an_operator_has_its_oracles_in_one_file, "tests/npu_ops/cases_mx.py",
        "import torch\n", 'import torch\nadd(\n    "npu_swiglu")\n',
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    root = tmp_path_factory.mktemp("tree")
    for folder in (
        "ops", "python/torch_npu/ops", "src/aten/custom", "src/aten/ops/fused", "src/compose",
        "drivers/host/kernels", "drivers/cuda/kernels", "tests/npu_ops",
    ):  # fmt: skip
        shutil.copytree(ROOT / folder, root / folder)
    return root


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tree_fails(name, copied):
    check, path, old, new = BROKEN[name]
    check(copied)
    text = text_of(copied / path)
    assert old in text
    try:
        (copied / path).write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises((AssertionError, YamlError)):
            check(copied)
    finally:
        (copied / path).write_text(text, encoding="utf-8")
