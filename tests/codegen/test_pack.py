# SPDX-License-Identifier: Apache-2.0
"""An operator pack with all sections: generated, compiled, loaded and run."""

import re
import shutil
from pathlib import Path

import interpreter
import pytest
from pack_build import compile_pack, generate
from programs import program

PACK = Path(__file__).resolve().parent / "pack"

RUN = program(__file__, "_run")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("pack")
    made = generate(out, PACK / "pack.yaml")
    assert made.returncode == 0, made.stderr
    done = compile_pack(out, PACK / "functions.cpp", out / "RegisterNPU.cpp")
    assert done.returncode == 0, done.stderr
    return out


def test_every_section_runs(built, tmp_path):
    done = interpreter.run(
        ["-c", RUN, str(built / "libpack.so"), str(built)],
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


FAQ = """
#include "torch_npu/csrc/aten/NPUNativeFunctions.h"

at::Tensor at_npu::native::NPUNativeFunctions::binary_cross_entropy(
    const at::Tensor& self, const at::Tensor& target,
    const std::optional<at::Tensor>& weight, int reduction) {
  return self;
}
"""


def small_pack(tmp_path, entry):
    (tmp_path / "ops.yaml").write_text(
        f"backend: NPU\ncpp_namespace: at_npu::native\nsupported:\n  - {entry}\n", encoding="utf-8"
    )
    made = generate(tmp_path / "out", tmp_path / "ops.yaml")
    assert made.returncode == 0, made.stderr
    return tmp_path / "out"


def test_wrong_signature_does_not_compile(tmp_path):
    """The guide's FAQ: int where the operator has int64_t. The compiler prints found and expected."""
    out = small_pack(tmp_path, "binary_cross_entropy")
    (tmp_path / "faq.cpp").write_text(FAQ, encoding="utf-8")
    done = compile_pack(out, tmp_path / "faq.cpp", link=False)
    assert done.returncode != 0
    text = " ".join(done.stderr.split())
    found = r"no declaration matches '[^']*::binary_cross_entropy\(.*?, int\)'"
    expected = r"candidate is: '[^']*::binary_cross_entropy\(.*?, int64_t\)'"
    assert re.search(found, text), done.stderr
    assert re.search(expected, text), done.stderr
    assert "NPUNativeFunctions.h" in done.stderr, "and where the expected one stands"


def test_scalar_by_value_is_explained(tmp_path):
    """The guide's signature without `scalar_by_value`: the line that gcc shows says what to write."""
    out = small_pack(tmp_path, "add.Tensor")
    (tmp_path / "add.cpp").write_text(
        '#include "torch_npu/csrc/aten/NPUNativeFunctions.h"\n'
        "at::Tensor at_npu::native::NPUNativeFunctions::add(const at::Tensor &self, "
        "const at::Tensor &other, at::Scalar alpha) { return self; }\n",
        encoding="utf-8",
    )
    done = compile_pack(out, tmp_path / "add.cpp", link=False)
    assert done.returncode != 0
    assert "scalar_by_value: true" in done.stderr


def test_missing_function_does_not_link(tmp_path):
    out = small_pack(tmp_path, "erfinv.out")
    done = compile_pack(out, out / "RegisterNPU.cpp")
    assert done.returncode != 0
    assert re.search(
        r"undefined reference to .at_npu::native::NPUNativeFunctions::erfinv_out\("
        r"at::Tensor const&, at::Tensor&\)",
        done.stderr,
    ), done.stderr


def test_deterministic_and_no_needless_writes(tmp_path):
    first = tmp_path / "first"
    assert generate(first, PACK / "pack.yaml").returncode == 0
    stamps = {p: p.stat().st_mtime_ns for p in first.rglob("*") if p.is_file()}
    assert generate(first, PACK / "pack.yaml").returncode == 0
    assert stamps == {p: p.stat().st_mtime_ns for p in first.rglob("*") if p.is_file()}
    second = tmp_path / "second"
    assert generate(second, PACK / "pack.yaml").returncode == 0
    texts = [
        {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.suffix != ".pickle"
         and p.is_file()}
        for out in (first, second)
    ]  # fmt: skip
    assert texts[0] == texts[1]


def test_damaged_cache_is_made_anew(tmp_path):
    out = tmp_path / "out"
    assert generate(out, PACK / "pack.yaml").returncode == 0
    (cache,) = out.glob("*.pickle")
    cache.write_bytes(b"not a pickle")
    shutil.rmtree(out / "torch_npu")
    assert generate(out, PACK / "pack.yaml").returncode == 0
    assert (out / "torch_npu/csrc/aten/NPUNativeFunctions.h").is_file()
    assert cache.stat().st_size > 1000
