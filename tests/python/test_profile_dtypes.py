# SPDX-License-Identifier: Apache-2.0
"""Dtypes of a profile: native, refused and unknown, in eager mode, compiled, counted, raised."""

import re
from pathlib import Path

import pytest
import torch
import torch_npu
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

HEAD = "import torch, torch_npu\n"
REFUSED = {
    "float64 aten::mm": "a = torch.ones(2, 2, dtype=torch.float64, device='npu'); a @ a",
    "complex64 aten::mm": "a = torch.ones(2, 2, dtype=torch.complex64, device='npu'); a @ a",
    "float64 aten::tanh": "torch.ones(3, dtype=torch.float64, device='npu').tanh()",
    "int8 aten::convolution_overrideable": (
        "x = torch.ones(1, 1, 3, 3, dtype=torch.int8, device='npu')\n"
        "torch.nn.functional.conv2d(x, torch.ones(1, 1, 2, 2, dtype=torch.int8, device='npu'))"
    ),
}


@pytest.fixture(autouse=True)
def counted_anew():
    torch.npu.reset_fallback_stats()


def gaps():
    return {gap["feature"]: gap["calls"] for gap in torch.npu.profile_gaps()}


def unknown():
    return {(row["operator"], row["dtype"]): row["calls"] for row in torch.npu.unknown_dtypes()}


# ---- refused -----------------------------------------------------------------------
@pytest.mark.parametrize("feature", list(REFUSED))
def test_refused_works_and_is_reported(feature, capfd):
    for line in REFUSED[feature].split("\n"):
        exec(line, globals())
    assert gaps() == {feature: 1}
    report = torch.npu.fallback_report()
    assert "Not on the profile ascend910b: works here, raises there." in report
    assert re.search(rf"^{feature} +1 +\S+:\d+ in ", report, re.MULTILINE), report
    assert torch.npu.fallback_stats() == [] and "Nothing fell back" in report


def test_each_call_is_counted_and_one_warning_given(run_python):
    code = HEAD + "a = torch.ones(2, 2, dtype=torch.float64, device='npu')\nfor _ in range(5):\n"
    code += "    a @ a\n    torch.tanh(a)\nprint([(g['feature'], g['calls'], g['call_site']) for g in torch.npu.profile_gaps()])"
    done = run_python(code)
    assert "('float64 aten::mm', 5, '<string>:4 in <module>')" in done.stdout, done.stdout
    assert "('float64 aten::tanh', 5, '<string>:5 in <module>')" in done.stdout
    lines = [line for line in done.stderr.splitlines() if line]
    assert len(lines) == 2, done.stderr
    assert (
        "npu: aten::mm: ascend910b refuses float64; it takes float16, bfloat16, float32. It runs "
        "here and raises an error there; NPU_PROFILE_STRICT=1 raises it here." in lines[0]
    )


@pytest.mark.parametrize("variables", [{"NPU_FALLBACK": "silent"}, {"TORCH_NPU_WARNING_DISABLE": "1"}, {"NPU_PROFILE": "none"}])  # fmt: skip
def test_quiet(run_python, variables):
    assert run_python(HEAD + REFUSED["float64 aten::mm"], **variables).stderr == ""


def test_a_refused_dtype_is_no_fallback(run_python):
    run_python(HEAD + REFUSED["float64 aten::mm"], NPU_FALLBACK="error")


def test_strict(run_python):
    code = HEAD + f"for code in {list(REFUSED.values())!r}:\n    try:\n        exec(code)\n"
    code += "    except RuntimeError as e:\n        print(e)\n    else:\n        raise SystemExit(code)\n"
    code += "x = torch.ones(2, device='npu')\nx += 1\ny = x.double()\n"
    code += "try:\n    y.tanh_()\nexcept RuntimeError:\n    assert (y == 2).all()\nelse:\n    raise SystemExit('in place')\n"
    done = run_python(code, NPU_PROFILE_STRICT="1")
    assert (
        "npu: aten::mm: ascend910b refuses float64; it takes float16, bfloat16, float32. Cast"
        in done.stdout
    )
    assert len(re.findall(r"ERR00100 PTA call acl api failed", done.stdout)) == len(REFUSED)


# ---- native and unknown -------------------------------------------------------------
def test_native_leaves_no_trace():
    x = torch.randn(4, 4, device="npu")
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        y = x.to(dtype)
        torch.nn.functional.gelu(y @ y + y * 2.0).softmax(0).sum()
    torch.nn.functional.embedding(torch.tensor([1, 2], device="npu"), x)
    torch.where(x > 0, x, 0.0)
    assert gaps() == {} and unknown() == {}
    assert torch.npu.fallback_report() == "Nothing fell back to the CPU."


def test_unknown_is_counted_apart(run_python):
    x = torch.ones(3, dtype=torch.float64, device="npu")
    for _ in range(3):
        x.erfc()
    assert gaps() == {} and unknown() == {("aten::erfc", "float64"): 3}
    (row,) = torch.npu.unknown_dtypes()
    assert "test_profile_dtypes.py" in row["call_site"]
    assert (
        "Unknown to the profile ascend910b: 1 dtypes of operators in 3 calls. "
        "torch.npu.unknown_dtypes() lists them." in torch.npu.fallback_report()
    )
    torch.npu.reset_fallback_stats()
    assert unknown() == {}
    code = HEAD + "torch.ones(3, dtype=torch.float64, device='npu').erfc()"
    assert run_python(code, NPU_PROFILE_STRICT="1").stderr == ""


def test_an_operator_that_falls_back_is_not_judged():
    x = torch.ones(3, dtype=torch.float64, device="npu")
    torch.fmax(x, x)
    assert gaps() == {} and unknown() == {}


def test_scalars_of_the_host_do_not_count():
    x = torch.ones(3, device="npu")
    x * 2.0 + torch.tensor(1.0, dtype=torch.float64)
    assert gaps() == {} and unknown() == {}


# ---- an oracle of its own: the file, read in Python, and the calls that a mode sees ---------------
class Calls(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        out = (kwargs or {}).get("out")
        dtypes = [t.dtype for t in given if t.device.type == "npu" and t is not out]
        self.seen.append((func, dtypes))
        return result


def taken_exactly():
    """{"mm": {"float32", ...}} of the "@takes" lines."""
    folder = Path(torch_npu.__file__).parent / "data" / "profiles" / "parts"
    names, rows = {}, {}

    def dtypes(words):
        return {d for word in words.split() for d in names.get(word, {word})}

    for line in (folder / "checks.txt").read_text().splitlines():
        if line.startswith("@dtypes "):
            name, _, words = line.removeprefix("@dtypes ").partition(" = ")
            names[name] = dtypes(words)
        elif line.startswith("@takes "):
            words, _, operators = line.removeprefix("@takes ").partition(": ")
            rows |= {operator: dtypes(words) for operator in operators.split()}
    return rows


ROWS = taken_exactly()
JUDGED = [op for op in op_db if op.name in ROWS or op.name in ("softmax", "log_softmax", "nn.functional.gelu", "nn.functional.silu", "nn.functional.linear", "nn.functional.layer_norm", "nn.functional.relu", "matmul", "einsum")]  # fmt: skip
DTYPES = (torch.float64, torch.float16, torch.complex64, torch.int16, torch.bool)


@pytest.mark.parametrize("op", JUDGED, ids=lambda op: op.name + (op.variant_test_name and f"-{op.variant_test_name}"))  # fmt: skip
def test_verdicts_are_the_files(op):
    for dtype in DTYPES:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        for sample in list(op.sample_inputs("npu", dtype))[:3]:
            given = tree_leaves((sample.input, sample.args, sample.kwargs))
            if any(isinstance(t, torch.Tensor) and t.numel() == 0 for t in given):
                continue  # nothing runs
            torch.npu.reset_fallback_stats()
            with Calls() as calls:
                try:
                    op(sample.input, *sample.args, **sample.kwargs)
                except RuntimeError:
                    continue
            wanted = set()
            for func, dtypes in calls.seen:
                name = func._schema.name.removeprefix("aten::")
                base = name.removesuffix("_") if not name.endswith("__") else name
                judged = [d for i, d in enumerate(dtypes) if i == 0 or d.is_floating_point or d.is_complex]  # fmt: skip
                names = {str(d).removeprefix("torch.") for d in judged}
                if base in ROWS:
                    wanted |= {f"{d} aten::{base}" for d in names - ROWS[base]}
            got = {feature for feature in gaps() if not feature.startswith("memory")}
            assert got == wanted, (op.name, dtype, [(str(f), d) for f, d in calls.seen])


# ---- compiled ---------------------------------------------------------------------------
@pytest.mark.parametrize("backend", ["inductor", "npu", "aot_eager"])
def test_compiled_as_eager(backend):
    def step(a, b):
        return torch.tanh(a @ b).erfc() + 1

    a = torch.ones(2, 2, dtype=torch.float64, device="npu")
    step(a, a)
    eager = set(gaps()), set(unknown())
    assert eager == ({"float64 aten::mm", "float64 aten::tanh"}, {("aten::erfc", "float64")})
    torch._dynamo.reset()
    compiled = torch.compile(step, backend=backend)
    compiled(a, a)
    torch.npu.reset_fallback_stats()
    torch._dynamo.reset()
    torch.compile(step, backend=backend)(a, a)
    assert (set(gaps()), set(unknown())) == eager


def test_compiled_and_strict(run_python):
    code = HEAD + "@torch.compile\ndef f(a):\n    return a @ a\n"
    code += "f(torch.ones(2, 2, dtype=torch.float64, device='npu'))"
    done = run_python(code, check=False, NPU_PROFILE_STRICT="1")
    assert done.returncode == 1 and "ascend910b refuses float64" in done.stderr


# ---- profiles ------------------------------------------------------------------------------
SAY = (
    HEAD
    + "print(torch_npu._C._dtypes_of({!r}), torch.npu.get_device_name(), torch.npu.get_soc_version())"
)


def said(run_python, overload, profile):
    text = run_python(SAY.format(overload), NPU_PROFILE=profile).stdout
    dtypes, _, rest = text.strip().rpartition("} ")
    return eval(dtypes + "}"), rest


def test_shipped_profiles(run_python):
    b, b_name = said(run_python, "aten::add.Tensor", "ascend910b")
    a3, a3_name = said(run_python, "aten::add.Tensor", "ascend910_93")
    a, a_name = said(run_python, "aten::add.Tensor", "ascend910a")
    p, p_name = said(run_python, "aten::add.Tensor", "ascend310p")
    assert "bfloat16" in b["native"] and a3 == b
    assert a == p and "bfloat16" in a["refused"] and set(a["native"]) == set(b["native"]) - {"bfloat16"}  # fmt: skip
    assert (b_name, a3_name) == ("Ascend910B1 220", "Ascend910_9391 250")
    assert (a_name, p_name) == ("Ascend910A 102", "Ascend310P3 202")
    # What only the tables of A2 and A3 say is unknown to the others, and bfloat16 is nowhere.
    assert said(run_python, "aten::erfc", "ascend910a")[0] == {
        "native": [],
        "refused": ["bfloat16"],
    }
    assert "complex64" in said(run_python, "aten::abs", "ascend910a")[0]["refused"]


def test_operators_are_judged_as_without_dtypes(run_python):
    code = HEAD + "x = torch.ones(3, dtype=torch.bfloat16, device='npu')\ntorch.fmax(x, x)"
    done = run_python(code, NPU_PROFILE="ascend910a")
    assert done.stderr.count("CAUTION: The operator 'aten::fmax.out'") == 1


def test_a_profile_of_ones_own(run_python, tmp_path):
    (tmp_path / "rows.txt").write_text("@dtypes mine = int8 float32\n@takes mine: mm\n")
    mine = tmp_path / "mine.txt"
    mine.write_text(
        "@include ./rows.txt\n@dtypes more = mine float64\n@lacks int8\n@takes_at_least more: add\nmm.out\nadd.out\n"
    )
    dtypes, _ = said(run_python, "aten::mm", str(mine))
    assert dtypes["native"] == ["float32"] and "int8" in dtypes["refused"]
    dtypes, _ = said(run_python, "aten::add_.Tensor", str(mine))
    assert dtypes == {"native": ["float32", "float64"], "refused": ["int8"]}
    mine.write_text("mm.out\n")
    code = HEAD + REFUSED["float64 aten::mm"] + "\nprint(torch.npu.unknown_dtypes())"
    assert run_python(code, NPU_PROFILE=str(mine)).stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("@takes float33: mm", "'float33' is no dtype of PyTorch's"),
        ("@takes float32 mm", "it is '@takes DTYPE...: OPERATOR...'"),
        ("@takes : mm", "it names no dtype"),
        ("@takes float32: ", "is no line of a profile"),
        ("@takes float32: no_such_operator", "'no_such_operator' is no operator of PyTorch's"),
        ("@takes float32: add.NoSuchOverload", "'add.NoSuchOverload' is no operator of PyTorch's"),
        ("@takes float32: mm!", "'mm!' is no name of an operator"),
        ("@takes float32: add", "'add' has a row already"),
        ("@dtypes float32 = float16", "'float32' has a meaning already"),
        ("@dtypes two words = float16", "it is '@dtypes NAME = DTYPE...'"),
        ("@dtypes empty =", "is no line of a profile"),
        ("@lacks", "is no line of a profile"),
        ("@lacks everything", "'everything' is no dtype"),
        ("@include ./missing.txt", "missing.txt"),
        ("@include nonsense", "nonsense"),
        ("@include ./mine.txt", "include each other"),
        ("@device", "is no line of a profile"),
    ],
)
def test_nonsense_is_refused_with_its_line(run_python, tmp_path, line, said):
    mine = tmp_path / "mine.txt"
    mine.write_text(f"# mine\nadd.out\n@takes float32: add\n{line}\n")
    done = run_python(HEAD + "torch.ones(2, device='npu') + 1", check=False, NPU_PROFILE=str(mine))
    assert done.returncode == 1
    assert "mine.txt:4: " in done.stderr and said in done.stderr, done.stderr
