# SPDX-License-Identifier: Apache-2.0
"""A formula stands once in the product as a composition, at most once in a driver as a kernel, and once in the tests as
the float64 oracle."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "codegen"))

import custom  # noqa: E402
from kinds_model import load_kinds  # noqa: E402

OPERATORS = custom.load(
    sorted((ROOT / "ops/npu").glob("*.yaml")),
    ROOT / "python/torch_npu/ops",
    load_kinds(ROOT / "ops/kinds.yaml"),
)
# What adapters may call of PyTorch: how operands come to be, and the kernels of rung 4 that one is handed to.
OPERANDS = {
    "arange", "cat", "cumsum", "empty", "full", "tensor", "zeros", "zeros_like",
    "_fused_adamw", "_int_mm", "addmm_cpu_dispatch", "mm_cpu_dispatch",
}  # fmt: skip


def test_every_kernel_stands_on_a_composition():
    rows = [(o, v) for o in OPERATORS for v in o.overloads if v.kernel]
    assert len(rows) > 20
    assert [v.name for o, v in rows if not (o.module and v.implemented)] == []


def test_adapters_of_kernels_compute_nothing():
    for file in sorted((ROOT / "src/aten/ops/fused").glob("*")):
        called = set(re.findall(r"#include <ATen/ops/(\w+)\.h>", file.read_text(encoding="utf-8")))
        assert called <= OPERANDS, f"{file.name}: leave {called - OPERANDS} to the composition"


@pytest.mark.parametrize("kernels", ["drivers/host/kernels", "drivers/cuda/kernels"])
def test_a_driver_has_one_kernel_for_a_kind(kernels):
    rows = Counter(
        kind
        for file in sorted((ROOT / kernels).rglob("*.c*"))
        for kind in re.findall(r"^\s*\{NPU_KIND_(\w+), \w", file.read_text(encoding="utf-8"), re.M)
    )
    assert len(rows) > 15
    assert [kind for kind, n in rows.items() if n > 1] == []


def test_kinds_of_rows_have_no_decomposition_in_cpp():
    composed = re.findall(
        r"\{NPU_KIND_(\w+),", (ROOT / "src/compose/compose.cpp").read_text(encoding="utf-8")
    )
    assert composed
    assert {kind.upper() for o in OPERATORS for kind in o.kinds} & set(composed) == set()


def test_no_gradient_is_registered_beside_its_row():
    """One node of autograd serves every row (src/aten/custom/gradient.cpp)."""
    for folder in ("custom", "ops/fused"):
        for file in sorted((ROOT / "src/aten" / folder).glob("*.cpp")):
            nodes = re.findall(r"autograd::Function<(\w+)>", file.read_text(encoding="utf-8"))
            assert nodes == (["Recorded"] if file.name == "gradient.cpp" else []), file


def test_an_operator_has_its_oracles_in_one_file():
    files = {}
    for file in sorted((ROOT / "tests/npu_ops").glob("cases_*.py")):
        for name in set(re.findall(r'^\s*add\(\s*"(\w+)"', file.read_text(encoding="utf-8"), re.M)):
            files.setdefault(name, []).append(file.name)
    assert len(files) > 100
    # Adaptive sampling is a formula of its own.
    assert [n for n, found in files.items() if len(found) > 1] == ["npu_roi_align"]
