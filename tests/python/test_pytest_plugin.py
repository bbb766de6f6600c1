# SPDX-License-Identifier: Apache-2.0
"""pytest --npu-no-fallback: each test here runs pytest on a small suite, in a process of its own."""

import json
import os
import xml.etree.ElementTree as xml

import interpreter
import pytest
from programs import program

SUITE = program(__file__, "_suite")


def pytest_on(folder, suite, *arguments, **variables):
    (folder / "test_suite.py").write_text(suite)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "NPU_"))} | variables
    # Named, so that it is there before the wheel has been installed again.
    command = ["-m", "pytest", "-q", "-p", "opennpu.pytest_plugin", "-p", "no:cacheprovider"]
    return interpreter.run([*command, *arguments], env=env, cwd=folder, timeout=300)


def outcomes(done):
    return done.stdout.strip().splitlines()[-1].rpartition(" in ")[0]


def test_a_test_fails_where_an_operator_falls_back(tmp_path):
    done = pytest_on(
        tmp_path, SUITE, "--npu-no-fallback", "--npu-fallback-json=f.json", "--junitxml=j.xml"
    )
    assert done.returncode == 1 and outcomes(done) == "2 failed, 2 passed", (
        done.stdout + done.stderr
    )
    line = "aten::fmax.out: 2 calls, no kernel, first at test_suite.py:9 in test_falls"
    assert f"npu: operators fell back to the CPU:\n  {line}" in done.stdout.replace("E   ", "")
    assert "opennpu explain" in done.stdout and "ValueError: of its own" in done.stdout
    assert "npu: fell back to the CPU (profile ascend910b)" in done.stdout

    found = json.loads((tmp_path / "f.json").read_text())
    assert (
        found["profile"] == "ascend910b" and found["judged_tests"] == found["tests_with_npu"] == 4
    )
    assert {name.partition("::")[2]: [r["reported"] for r in rows] for name, rows in found["tests"].items()} == {
        "test_falls": ["aten::fmax.out"], "test_allowed": ["aten::fmax.out"], "test_raises": ["aten::fmin.out"],
    }  # fmt: skip
    assert [(r["operator"], r["calls"], r["tests"]) for r in found["operators"]] == [
        ("aten::fmax.out", 3, 2), ("aten::fmin.out", 1, 1),
    ]  # fmt: skip

    cases = {case.get("name"): case for case in xml.parse(tmp_path / "j.xml").iter("testcase")}
    said = {p.get("name"): p.get("value") for p in cases["test_falls"].iter("property")}
    assert said == {"npu_fallback": line}
    assert cases["test_falls"].find("failure") is not None
    assert cases["test_native"].find("properties") is None


@pytest.mark.parametrize("pattern", ["aten::fmax", "fm*", "aten::fmax.out"])
def test_operators_that_are_allowed(tmp_path, pattern):
    done = pytest_on(
        tmp_path, SUITE, "--npu-no-fallback", f"--npu-allow-fallback={pattern}", "-k", "not raises"
    )
    assert done.returncode == 0 and outcomes(done) == "3 passed, 1 deselected", done.stdout


def test_operators_allowed_by_the_projects_file(tmp_path):
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nnpu_allow_fallback =\n  aten::fmin\n  aten::fmax\n"
    )
    done = pytest_on(tmp_path, SUITE, "--npu-no-fallback", "-k", "not raises")
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "pattern", ["aten::fmx", "fmx", "fmx*", "float64 aten::mmm", "nosuch::fmax"]
)
def test_an_operator_that_does_not_exist_is_refused(tmp_path, pattern):
    flag = f"--npu-allow-fallback={pattern}"
    done = pytest_on(tmp_path, SUITE, "--npu-no-fallback", flag)
    said = f"there is no operator {pattern!r}"
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and said in done.stderr, done.stdout
    assert "near it: " in done.stderr or "nosuch" in pattern
    assert "Traceback" not in done.stdout + done.stderr
    if pattern == "aten::fmx":
        done = pytest_on(tmp_path, SUITE, "--npu-no-fallback", flag, "-n", "2")
        assert done.returncode == 1 and f"npu_allow_fallback: {said}" in done.stdout, done.stdout


@pytest.mark.parametrize(
    "pattern", ["*", "f*", "float64*", "memory*", "mine::one", "aten::fmax.out"]
)
def test_names_that_something_has_are_taken(tmp_path, pattern):
    own = 'torch.library.define("mine::one", "(Tensor x) -> Tensor")\n'
    suite = f"import torch\n{own}def test_one(npu_device): torch.ones(2, device=npu_device)\n"
    done = pytest_on(tmp_path, suite, "--npu-no-fallback", f"--npu-allow-fallback={pattern}")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_marker_with_a_misspelt_name_fails_its_test(tmp_path):
    suite = SUITE.replace('npu_allow_fallback("aten::fmax")', 'npu_allow_fallback("aten::fmaxx")')
    done = pytest_on(tmp_path, suite, "--npu-no-fallback", "-k", "allowed")
    assert done.returncode == 1 and "no operator 'aten::fmaxx'; near it: aten::fmax" in done.stdout


def test_without_the_flag_only_the_fixture_judges(tmp_path):
    suite = (
        SUITE
        + """
def test_judged(no_fallback, npu_device):
    x = torch.ones(2, device=npu_device)
    torch.fmax(x, x)

def test_judged_and_native(no_fallback, npu_device):
    torch.ones(2, device=npu_device)
"""
    )
    done = pytest_on(tmp_path, suite, "-k", "not raises")
    assert outcomes(done) == "1 failed, 4 passed, 1 deselected", done.stdout
    assert "FAILED test_suite.py::test_judged " in done.stdout + " "


def test_what_raises_on_the_chip_fails_too(tmp_path):
    suite = """
import pytest, torch

def test_refused(npu_device):
    x = torch.ones(2, 2, dtype=torch.float64, device=npu_device)
    x @ x
    x.erfc()

@pytest.mark.npu_allow_fallback("float64 aten::mm")
def test_allowed(npu_device):
    x = torch.ones(2, 2, dtype=torch.float64, device=npu_device)
    x @ x

@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_of(dtype, npu_device):
    x = torch.ones(2, 2, dtype=dtype, device=npu_device)
    x @ x

def test_layout(npu_device):
    torch.ones(1, 2, 3, 4, device=npu_device).to(memory_format=torch.channels_last)
"""
    done = pytest_on(
        tmp_path, suite, "--npu-no-fallback", "--npu-fallback-json=new/f.json", "--junitxml=j.xml"
    )
    assert outcomes(done) == "3 failed, 2 passed", done.stdout
    line = "float64 aten::mm: 1 call, first at test_suite.py:6 in test_refused"
    said = done.stdout.replace("E   ", "")
    assert f"npu: works here, raises an error on ascend910b:\n  {line}" in said, done.stdout
    assert "npu: works here, raises an error there (profile ascend910b)" in said
    assert "npu: 1 dtypes of operators are unknown to the profile ascend910b, in 1 call" in said
    found = json.loads((tmp_path / "new" / "f.json").read_text())
    assert found["tests"] == {} and found["unknown"] == [
        {"operator": "aten::erfc", "dtype": "float64", "calls": 1}
    ]
    assert {r["feature"]: (r["calls"], r["tests"]) for r in found["refused"]} == {
        "float64 aten::mm": (2, 2), "complex64 aten::mm": (1, 1), "memory_format=channels_last": (1, 1),
    }  # fmt: skip
    assert sorted(name.partition("::")[2] for name in found["refused_tests"]) == [
        "test_allowed", "test_layout", "test_of[dtype1]", "test_refused",
    ]  # fmt: skip
    cases = {case.get("name"): case for case in xml.parse(tmp_path / "j.xml").iter("testcase")}
    assert [p.get("value") for p in cases["test_refused"].iter("property")] == [line]
    for pattern in ("aten::mm", "mm", "memory_format=*"):
        done = pytest_on(tmp_path, suite, "--npu-no-fallback", f"--npu-allow-fallback={pattern}")
        assert outcomes(done) == ("2 failed, 3 passed" if "=" in pattern else "1 failed, 4 passed")


@pytest.mark.parametrize("arguments", [(), ("--npu-no-fallback",)])
def test_fixtures_that_fall_back_belong_to_their_test(tmp_path, arguments):
    suite = """
import pytest, torch

@pytest.fixture
def model(npu_device):
    x = torch.ones(2, device=npu_device)
    return torch.fmax(x, x)

def test_before(npu_device):
    x = torch.ones(2, device=npu_device)
    torch.fmin(x, x) if not ALLOWED else None

def test_fixture_first(model, no_fallback): pass

def test_fixture_last(no_fallback, model): pass

def test_late(request, npu_device):
    x = torch.ones(2, device=npu_device)
    request.getfixturevalue("no_fallback")
    torch.fmax(x, x)

@pytest.mark.npu_no_fallback
def test_marked(model): pass

@pytest.mark.xfail(strict=True)
def test_expected(no_fallback, model): pass

def test_native(no_fallback, npu_device):
    torch.ones(2, device=npu_device).add(1)
""".replace("ALLOWED", str(bool(arguments)))
    done = pytest_on(tmp_path, suite, *arguments)
    assert outcomes(done) == "4 failed, 2 passed, 1 xfailed", done.stdout
    assert "fmin" not in done.stdout.partition("short test summary")[0].partition("FAILURES")[2]


def test_operators_that_the_policy_refused(tmp_path):
    suite = """
import os, pytest, torch
os.environ["NPU_FALLBACK"] = "error"

def test_refused(npu_device):
    x = torch.ones(2, device=npu_device)
    with pytest.raises(RuntimeError):
        torch.fmax(x, x)
"""
    done = pytest_on(tmp_path, suite, "--npu-no-fallback")
    line = "aten::fmax.out: 1 call, refused by NPU_FALLBACK=error, first at test_suite.py:"
    assert outcomes(done) == "1 failed" and line in done.stdout, done.stdout


def test_children_obey_the_environment(tmp_path):
    suite = """
import os, subprocess, sys

def test_child(npu_device):
    code = "import torch; x = torch.ones(2, device='npu'); torch.fmax(x, x)"
    env = {**os.environ, "NPU_FALLBACK": "error"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and "aten::fmax.out" in done.stderr, done.stderr
"""
    done = pytest_on(tmp_path, suite, "--npu-no-fallback")
    assert outcomes(done) == "1 passed", done.stdout


def test_a_run_without_an_npu_is_no_success(tmp_path):
    done = pytest_on(tmp_path, "def test_one(): pass\n", "--npu-no-fallback")
    assert done.returncode == 5 and "no test used an npu device" in done.stdout, done.stdout
    done = pytest_on(tmp_path, "def test_one(): pass\n")
    assert done.returncode == 0 and "npu" not in done.stdout


def test_a_run_without_a_profile_says_so(tmp_path):
    suite = "def test_one(npu_device):\n    import torch\n    x = torch.ones(2).npu()\n    torch.fmax(x, x)\n"
    done = pytest_on(tmp_path, suite, "--npu-no-fallback", NPU_PROFILE="none")
    assert done.returncode == 0 and "no chip was imitated" in done.stdout
    done = pytest_on(tmp_path, suite, "--npu-no-fallback", "--npu-allow-fallback=fmax")
    assert done.returncode == 0 and "no chip was imitated" not in done.stdout


def test_workers_of_xdist_tell_the_controller(tmp_path):
    pytest.importorskip("xdist")
    done = pytest_on(tmp_path, SUITE, "--npu-no-fallback", "--npu-fallback-json=f.json", "-n", "2")
    assert done.returncode == 1 and outcomes(done) == "2 failed, 2 passed", done.stdout
    found = json.loads((tmp_path / "f.json").read_text())
    assert found["tests_with_npu"] == 4 and len(found["tests"]) == 3


def test_it_imports_neither_torch_nor_the_plugin(tmp_path):
    suite = "import sys\ndef test_one(): assert 'torch' not in sys.modules\n"
    done = interpreter.run(
        ["-m", "pytest", "-q", "-p", "opennpu.pytest_plugin", "-p", "no:cacheprovider", str(_written(tmp_path, suite))],
        env=dict(os.environ), cwd=tmp_path, timeout=300, exact=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def _written(folder, suite):
    path = folder / "test_plain.py"
    path.write_text(suite)
    return path
