# SPDX-License-Identifier: Apache-2.0
"""torch_npu.testing: what passes, what fails, and which tests are made."""

import re
import unittest
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_npu
from programs import program
from torch_npu.testing.common_distributed import skipIfUnsupportMultiNPU
from torch_npu.testing.common_utils import (
    Baseline,
    SkipIfNoLapack,
    SkipIfNotGteCANNVersion,
    SkipIfNotRegistered,
    SupportedDevices,
    check_operators_in_prof,
    create_common_tensor,
    create_dtype_tensor,
    freeze_rng_state,
    get_cycles_per_ms,
    get_npu_device,
    is_iterable,
    iter_indices,
)
from torch_npu.testing.decorator import (
    Dtypes,
    Formats,
    graph_mode,
    instantiate_ops_tests,
    instantiate_tests,
)
from torch_npu.testing.testcase import TestCase as NpuTestCase

T = torch.tensor


@pytest.fixture
def case():
    made = NpuTestCase()
    made._testMethodName = "none"
    return made


def fails(check, *args, **kwargs) -> str:
    with pytest.raises(AssertionError) as caught:
        check(*args, **kwargs)
    return str(caught.value)


# assertRtolEqual ------------------------------------------------------------


@pytest.mark.parametrize(
    "x, y",
    [
        (T([1.0, 2.0]), T([1.0, 2.0])),
        (np.float32([1.0, 2.0]), np.float32([1.00009, 2.0])),  # absolute, just
        (T([1e6]), T([1e6 + 50])),  # relative
        (T([1e-7, 0.0]), T([5e-5, 0.0])),  # absolute
        (T([1e-3], dtype=torch.half), T([1.5e-3], dtype=torch.half)),  # prec16
        (T([1.0], dtype=torch.bfloat16), T([1.0], dtype=torch.bfloat16)),
        (T([float("nan"), 1.0]), T([float("nan"), 1.0])),
        (T([float("inf")]), T([float("inf")])),
        (T([True, False]), T([True, False])),
        ([T(1.0), T(2)], [T(1.0), T(2)]),
        (T([]), T([])),
        (3.0, 3.0),
        (T([3, 4]), T([3, 4])),
    ],
)
def test_rtol_equal_passes(case, x, y):
    case.assertRtolEqual(x, y)


@pytest.mark.parametrize(
    "x, y, says",
    [
        (T([1.0, 2.0]), T([1.0, 2.1]), r"at \(1,\): 2\.0.* and 2\.0999"),
        (T([1.0]), T([[1.0]]), "shapes differ"),
        (T([1.0]), T([1.0], dtype=torch.half), "dtypes differ"),
        (T([1.0, float("nan")]), T([1.0, 1.0]), r"NaN in one only, at \(1,\)"),
        (T([float("inf")]), T([float("-inf")]), "largest difference"),
        (T([float("inf")]), T([1.0]), "largest difference"),
        (T([True]), T([False]), "1 of 1 elements differ"),
        (T([1.0], dtype=torch.half), T([1.01], dtype=torch.half), "0.001"),
        (T([1.0], dtype=torch.bfloat16), T([1.01], dtype=torch.bfloat16), "0.001"),
        (T([1j]), T([1j]), "complex"),
        ([T(1.0)], [T(1.0), T(2.0)], "1 items against 2"),
        (T([3]), T([4]), "largest difference"),
        (T([200], dtype=torch.uint8), T([201], dtype=torch.uint8), "largest difference is 1"),
    ],
)
def test_rtol_equal_fails(case, x, y, says):
    with pytest.raises(AssertionError, match=says):
        case.assertRtolEqual(x, y)


def test_rtol_equal_allows_a_small_share(case):
    x = torch.ones(20_000)
    y = x.clone()
    y[:2] = 5  # 1e-4 of them
    case.assertRtolEqual(x, y)
    y[2] = 5
    assert "3 of 20000 elements" in fails(case.assertRtolEqual, x, y)


def test_rtol_equal_options(case):
    case.assertRtolEqual(T([1.0]), T([1.01]), prec=0.1)
    case.assertRtolEqual(T([1.0], dtype=torch.half), T([1.0]), auto_trans_dtype=True)
    case.assertRtolEqual(T([1.0]).npu(), T([1.0]))
    case.assertRtolEqual(T([1.0], requires_grad=True), T([1.0]))
    assert fails(case.assertRtolEqual, T([1.0]), T([2.0]), message="sample 3").startswith(
        "sample 3"
    )


# assertEqual and its relatives ----------------------------------------------


@pytest.mark.parametrize(
    "x, y",
    [
        (T([1.0]).npu(), T([1.0])),
        (T([1.0]), T([1.000009])),
        (T([2]).npu(), T([2.0])),
        (T(2.0).npu(), 2),
        (3, T([3])),
        (T([1 + 2j]).npu(), T([1 + 2j])),
        (T([float("nan")]), T([float("nan")])),
        (np.ones(3), T([1.0, 1, 1]).npu()),
        ({"a": [T(1).npu()]}, {"a": [T(1)]}),
        ("text", "text"),
        (torch.Size([2, 3]), [2, 3]),
        (None, None),
        (torch.float32, torch.float32),
        (T([[1.0, 0.0]]).to_sparse(), T([[1.0, 0.0]])),
    ],
)
def test_equal_passes(case, x, y):
    case.assertEqual(x, y)


@pytest.mark.parametrize(
    "x, y",
    [
        (T([1.0]).npu(), T([1.00002])),
        (T([1.0]), T([1.0, 1.0])),
        (T([float("nan")]), T([1.0])),
        (T([float("inf")]), T([float("-inf")])),
        (T([1.0, 2.0]), 1.0),
        ([1, 2], [1, 2, 3]),
        ({"a": 1}, {"b": 1}),
        ("text", "other"),
        (None, 0),
        (T([True]), T([False])),
        (2**53, 2**53 + 1),
        (-(2**63), 0),
        (2**63 - 1, -(2**63)),
    ],
)
def test_equal_fails(case, x, y):
    fails(case.assertEqual, x, y)
    case.assertNotEqual(x, y)


def test_equal_options(case):
    case.assertEqual(T([1.0]), T([1.1]), 0.2)
    case.assertEqual(T([float("inf")]), T([float("-inf")]), allow_inf=True)
    fails(case.assertEqual, T([1.0]), T([1]), exact_dtype=True)
    assert fails(case.assertEqual, T([1.0]), T([2.0]), "with a text").startswith("with a text")
    case.assertAlmostEqual(T([1.0]).npu(), T([1.04]), delta=0.1)
    case.assertAlmostEqual(1.0, 1.04, places=1)
    fails(case.assertAlmostEqual, 1.0, 1.4, places=1)
    fails(case.assertNotEqual, T([1.0]).npu(), T([1.0]))
    case.assertTensorsSlowEqual(T([1.0]).npu(), T([1.0]), prec=1e-3, message="m")
    fails(case.assertTensorsSlowEqual, T([1.0]).npu(), T([[1.0]]))


def test_warnings(case):
    import warnings

    def loud():
        warnings.warn("loud", UserWarning, stacklevel=1)

    case.assertWarns(loud)
    case.assertNotWarn(lambda: None)
    fails(case.assertWarns, lambda: None)
    assert "loud" in fails(case.assertNotWarn, loud)
    with case.assertWarns(UserWarning):
        loud()
    with case.maybeWarnsRegex(UserWarning, "lou"):
        loud()
    with case.maybeWarnsRegex(UserWarning):
        pass
    with pytest.raises(AssertionError), case.maybeWarnsRegex(UserWarning, "quiet"):
        loud()


def test_sparse_and_objects(case):
    torch.manual_seed(0)
    x, indices, values = case.genSparseTensor([4, 5, 2], 2, 6, True)
    assert indices.shape == (2, 12) and values.shape == (12, 2) and not x.is_coalesced()
    case.assertEqual(case.safeToDense(x), x.to_dense())
    one, other = T([1.0]), T([1.0])
    case.assertObjectIn(one, [other, one])
    fails(case.assertObjectIn, one, [other])


# Makers and gates -----------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("npu_format", [-1, 0, 2, 3, 29])
def test_create_common_tensor(dtype, npu_format):
    cpu, npu = create_common_tensor([dtype, npu_format, (5, 4)], 0, 100)
    assert npu.is_npu and not cpu.is_npu and cpu.numpy().dtype == dtype
    assert torch.equal(cpu, npu.cpu()) and (cpu >= 0).all() and (cpu <= 100).all()


@pytest.mark.parametrize(
    "dtype", [torch.float, torch.half, torch.bfloat16, torch.int32, torch.bool, torch.cfloat]
)
@pytest.mark.parametrize("shape", [(), (0,), (6,), (6, 6), (0, 6)])
def test_create_dtype_tensor(dtype, shape):
    for npu_format in (-1, 0, 3, 4):
        cpu, npu = create_dtype_tensor(shape, dtype, npu_format, device="npu:0")
        assert cpu.dtype == npu.dtype == dtype and cpu.shape == npu.shape == shape
        assert torch.equal(cpu, npu.cpu())


def test_create_dtype_tensor_without_zeros():
    np.random.seed(0)
    cpu, _ = create_dtype_tensor((1000,), torch.int32, min_value=-1, max_value=1, no_zero=True)
    assert not (cpu == 0).any() and {-1, 1} == set(cpu.tolist())


def test_small_tools(monkeypatch, tmp_path):
    assert get_npu_device() == "npu:0"
    monkeypatch.setenv("SET_NPU_DEVICE", "3")
    assert get_npu_device() == "npu:3"
    monkeypatch.setenv("SET_NPU_DEVICE", "npu:2")
    assert get_npu_device() == "npu:2"
    assert is_iterable([1]) and not is_iterable(1)
    assert list(iter_indices(torch.zeros(2))) == [0, 1]
    assert list(iter_indices(torch.zeros(1, 2))) == [(0, 0), (0, 1)]
    assert get_cycles_per_ms() > 0
    baseline = Baseline(str(tmp_path / "times.json"))
    baseline.set_baseline("add", 3.5)
    baseline.save_baseline()
    assert Baseline(str(tmp_path / "times.json")).get_baseline("add") == 3.5


def test_freeze_rng_state():
    torch.manual_seed(1)
    torch.zeros(1, device="npu")
    with freeze_rng_state():
        first = torch.rand(3), torch.rand(3, device="npu")
    again = torch.rand(3), torch.rand(3, device="npu")
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


def test_check_operators_in_prof():
    with torch.autograd.profiler.profile() as prof:
        torch.ones(2, device="npu") + 1
    assert check_operators_in_prof(["aten::add"], prof)
    assert not check_operators_in_prof(["aten::mul"], prof)
    assert not check_operators_in_prof([], prof, ["aten::add"])


def runs(gate) -> bool:
    try:
        return gate(lambda: True)()
    except unittest.SkipTest:
        return False


@pytest.mark.parametrize(
    "name, listed, expected",
    [
        ("Ascend910B1", "Ascend910B", True),
        ("Ascend910A", "Ascend910B", False),
        ("Ascend910_9391", "Ascend910_93", True),
        ("Ascend950PR_9599", "Ascend950", True),
        ("Some Other", "Ascend910B", False),
    ],
)
def test_supported_devices(monkeypatch, name, listed, expected):
    monkeypatch.setenv("NPU_DEVICE_NAME", name)
    assert runs(SupportedDevices(["AscendX", listed])) is expected


def test_other_gates(monkeypatch):
    assert runs(SkipIfNotRegistered("aten::add", "no add"))
    assert not runs(SkipIfNotRegistered("NoSuchOperator", "absent"))
    assert runs(SkipIfNoLapack) is torch._C.has_lapack
    assert runs(SkipIfNotGteCANNVersion("8.1.RC1")) and not runs(SkipIfNotGteCANNVersion("99.0"))
    module = "torch_npu.testing.common_utils.get_cann_version"
    monkeypatch.setattr(module, lambda: "")
    assert runs(SkipIfNotGteCANNVersion("99.0"))  # no CANN is none too old
    monkeypatch.setattr(module, lambda: "8.1.RC1")
    assert not runs(SkipIfNotGteCANNVersion("8.2.RC1"))
    assert runs(SkipIfNotGteCANNVersion("8.1.RC1")) and runs(SkipIfNotGteCANNVersion("8.0.0"))
    assert runs(skipIfUnsupportMultiNPU(1)) and not runs(skipIfUnsupportMultiNPU(1000))


# Tests over dtypes, formats and operators -----------------------------------


def names_of(cls) -> set[str]:
    return {name for name in dir(cls) if name.startswith("test")}


def test_instantiate_tests():
    seen = []

    @instantiate_tests
    class Made(NpuTestCase):
        @Dtypes(torch.float, torch.half)
        @Formats(0, 3)
        def test_both(self, device, dtype, npu_format):
            seen.append((device, dtype, npu_format))

        @Dtypes(torch.int32)
        def test_default_device(self, dtype, device="npu"):
            seen.append((device, dtype))

        @graph_mode
        def test_plain(self):
            seen.append("plain")

    assert names_of(Made) == {
        "test_both_float32_0", "test_both_float32_3", "test_both_float16_0",
        "test_both_float16_3", "test_default_device_int32", "test_plain",
    }  # fmt: skip
    result = unittest.defaultTestLoader.loadTestsFromTestCase(Made).run(unittest.TestResult())
    assert result.wasSuccessful() and result.testsRun == 6, result.errors
    assert ("npu:0", torch.half, 3) in seen and ("npu", torch.int32) in seen and "plain" in seen


def test_instantiate_ops_tests():
    class Info:
        def __init__(self, name, dtypes):
            self.name, self.dtypes = name, dtypes

    db = [Info("nn.functional.relu", {torch.float, torch.half}), Info("add", {torch.int32})]
    seen = []

    @instantiate_ops_tests(db)
    class Made(NpuTestCase):
        @Formats(0)
        def test_op(self, dtype, op, npu_format=0):
            seen.append((op.name, dtype, npu_format))

    result = unittest.defaultTestLoader.loadTestsFromTestCase(Made).run(unittest.TestResult())
    assert result.wasSuccessful() and result.testsRun == 3, result.errors
    assert set(seen) == {
        ("nn.functional.relu", torch.float, 0),
        ("nn.functional.relu", torch.half, 0),
        ("add", torch.int32, 0),
    }
    assert "test_op_nn_functional_relu_0_float32" in names_of(Made)


SCRIPT = program(__file__, "_script")


def test_run_tests_and_seeds(run_python, tmp_path):
    done = run_python(SCRIPT, check=False)
    assert done.returncode == 1
    assert "Ran 3 tests" in done.stderr and "FAILED (failures=1)" in done.stderr
    (tmp_path / "off.json").write_text('{"test_wrong (__main__.TestSeeds)": ["issue", []]}')
    done = run_python(SCRIPT, DISABLED_TESTS_FILE=str(tmp_path / "off.json"))
    assert "OK (skipped=1)" in done.stderr


def test_wrong_use():
    with pytest.raises(ValueError, match="Dtypes: expected at least one value"):
        Dtypes()
    with pytest.raises(ValueError, match="format 77"):
        torch_npu.npu_format_cast(torch.zeros(2, device="npu"), 77)


def test_create_common_tensor_ignores_what_a_test_keeps_with_it():
    cpu, npu = create_common_tensor([np.float32, -1, [2, 3], 1, "more"], 0, 1)
    assert cpu.shape == npu.shape == (2, 3)


@pytest.mark.parametrize("compare", ["assertRtolEqual", "assertEqual"])
@pytest.mark.parametrize("on_npu", [False, True])
def test_comparisons_take_little_memory(case, compare, on_npu):
    # 80 MB each; the copies that were made took 900 MB more.
    x = torch.ones(20_000_000)
    y = x.clone()
    if on_npu:
        y = y.npu()
    process = Path("/proc/self")
    (process / "clear_refs").write_text("5")  # the peak begins anew
    before = resident(process, "VmRSS")
    getattr(case, compare)(x, y)
    assert resident(process, "VmHWM") - before < 150 * 1024
    y[-1] = 3
    with pytest.raises(AssertionError, match=r"\(19999999,\): 1.0 and 3.0"):
        case.assertEqual(x, y)


def resident(process, name):
    """Kilobytes, from /proc/self/status."""
    lines = (process / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))


def test_comparisons_of_views_say_where(case):
    x = torch.zeros(3, 700, 300)
    y = x.clone()
    y[2, 650, 7] = 1
    for a, b in ((x, y), (x.transpose(0, 2), y.transpose(0, 2))):
        place = tuple(int(i) for i in (a != b).nonzero()[0])
        with pytest.raises(AssertionError, match=re.escape(f"at {place}: 0.0 and 1.0")):
            case.assertEqual(a, b)
        case.assertRtolEqual(a, b)  # one of many
    with pytest.raises(AssertionError, match="NaN in one only, at \\(2, 650, 7\\)"):
        case.assertRtolEqual(x, y.where(y == 0, float("nan")))
    with pytest.raises(AssertionError, match="1 of 630000 elements differ, the first at"):
        case.assertEqual(x.bool(), y.bool())
