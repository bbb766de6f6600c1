# SPDX-License-Identifier: Apache-2.0
"""What the user sees when an operator leaves the device: warning, error, report, profile."""

import re

import pytest
import torch
import torch_npu
from programs import program

CAUTION = (
    "CAUTION: The operator '{}' is not currently supported on the NPU backend and will fall back "
    "to run on the CPU. This may have performance implications. (function npu_cpu_fallback)"
)
ERROR_LINE = (
    r"\[ERROR\] \d{4}-\d\d-\d\d-\d\d:\d\d:\d\d \(PID:\d+, Device:0, RankID:-1\) "
    r"ERR01007 OPS feature not supported"
)
FMAX = "import torch, torch_npu\nx = torch.ones(3, device='npu')\ntorch.fmax(x, x)\n"


def warnings_in(run):
    return re.findall(r"CAUTION: The operator '([^']*)'", run.stderr)


def test_the_line_is_torch_npus(run_python):
    run = run_python(FMAX)
    lines = [line for line in run.stderr.splitlines() if line]
    assert len(lines) == 1, run.stderr
    assert re.fullmatch(
        r"\[W.*\] Warning: " + re.escape(CAUTION.format("aten::fmax.out")), lines[0]
    )


def test_once_per_overload_whatever_form_is_called(run_python):
    code = (
        FMAX + "torch.fmax(x, x)\nout = torch.empty(3, device='npu')\ntorch.fmax(x, x, out=out)\n"
    )
    assert warnings_in(run_python(code)) == ["aten::fmax.out"]


def test_once_with_many_threads(run_python):
    code = """
import threading, torch, torch_npu
x = torch.ones(3, device="npu")
threads = [threading.Thread(target=lambda: torch.fmax(x, x)) for _ in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
"""
    assert warnings_in(run_python(code)) == ["aten::fmax.out"]


def test_it_is_no_python_warning(run_python):
    code = "import warnings\nwarnings.simplefilter('error')\n" + FMAX
    assert warnings_in(run_python(code)) == ["aten::fmax.out"]


def test_composites_report_what_they_reach(run_python):
    code = """
import torch, torch_npu
x = torch.randn(3, 3).to("npu")
torch.linalg.lstsq(x, x)
"""
    assert "aten::linalg_lstsq.out" in warnings_in(run_python(code))


def test_views_composites_and_training_never_warn(run_python):
    code = program(__file__, "_views_composites_and_training_never_warn")
    run = run_python(code)
    assert run.stderr == ""


def test_import_is_silent(run_python):
    run = run_python("import torch_npu")
    assert run.stderr == "" and run.stdout == ""


@pytest.mark.parametrize(
    "variables",
    [
        {"NPU_FALLBACK": "silent"},
        {"TORCH_NPU_WARNING_DISABLE": "1"},
        {"RANK": "1"},
        {"NPU_PROFILE": "none"},
    ],
    ids=lambda v: "=".join(*v.items()),
)
def test_quiet(run_python, variables):
    assert run_python(FMAX, **variables).stderr == ""


def test_rank_zero_still_warns(run_python):
    assert warnings_in(run_python(FMAX, RANK="0")) == ["aten::fmax.out"]


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"NPU_FALLBACK": "error"}, "NPU_FALLBACK=error"),
        ({"TORCH_NPU_FALLBACK_CPU_DISABLE": "1"}, "TORCH_NPU_FALLBACK_CPU_DISABLE=1"),
    ],
    ids=["ours", "torch_npus"],
)
def test_forbidden(run_python, variables, named):
    code = FMAX.replace("torch.fmax(x, x)", "y = x + x")  # on the profile: runs
    code += """
for _ in range(2):
    try:
        torch.fmax(x, x)
    except RuntimeError as error:
        print(error)
"""
    run = run_python(code, **variables)
    assert run.stderr == ""
    text = run.stdout.strip()
    assert text.count("aten::fmax.out") == 2
    assert (
        "would execute its main computation on CPU through dispatcher backend fallback because no "
        "kernel is registered for the NPU PrivateUse1 backend, but CPU fallback is disabled by "
        f"{named}." in text
    )
    assert re.search(ERROR_LINE + "$", text)


def test_bad_values_are_named(run_python):
    for name, value in (("NPU_FALLBACK", "loud"), ("NPU_PROFILE", "ascend42")):
        run = run_python(FMAX, check=False, **{name: value})
        assert run.returncode == 1
        assert name in run.stderr and value in run.stderr
        assert "RuntimeError" in run.stderr or "ValueError" in run.stderr


def test_a_profile_of_ones_own(run_python, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("# what my chip does\nfmax.out\nmylib::operator_of_another_library\n")
    code = FMAX + "torch.linalg.inv(torch.eye(2, device='npu'))\n"
    names = warnings_in(run_python(code, NPU_PROFILE=str(mine)))
    assert "aten::fmax.out" not in names
    assert "aten::linalg_inv_ex.inverse" in names


@pytest.mark.parametrize("line", ["this is nonsense !!", "no_such_operator", "@nothing at all"])
def test_a_wrong_line_of_a_profile_is_named(run_python, tmp_path, line):
    mine = tmp_path / "mine.txt"
    mine.write_text(f"# what my chip does\nfmax.out\n{line}\n")
    run = run_python(FMAX, check=False, NPU_PROFILE=str(mine))
    assert run.returncode == 1
    assert f"{mine}:3: '{line}' is no" in run.stderr


def test_refused_operators_are_counted(run_python, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("""
import torch, torch_npu
x = torch.ones(4, device="npu")
for _ in range(2):
    try:
        torch.fmax(x, x)
    except RuntimeError:
        pass
(row,) = torch.npu.fallback_stats()
assert row["calls"] == 0 and row["refused_calls"] == 2, row
assert row["reported"] == "aten::fmax.out" and row["reason"] == "refused by NPU_FALLBACK=error"
assert row["call_site"] == "train.py:6 in <module>"
assert row["call_site_path"] == __file__ + ":6 in <module>", row
assert "refused by NPU_FALLBACK=error" in torch.npu.fallback_report()
torch.npu.reset_fallback_stats()
assert torch.npu.fallback_stats() == []
""")
    code = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    run_python(code, NPU_FALLBACK="error")


def test_report_rows(run_python):
    code = program(__file__, "_report_rows")
    run_python(code, NPU_FALLBACK="silent")


def test_counted_time_is_the_clocks(run_python):
    code = program(__file__, "_counted_time_is_the_clocks")
    run_python(code, NPU_FALLBACK="silent")


def test_judgement_of_the_profile():
    explain = torch_npu._C._explain_operator
    rows = {row["overload"]: row for row in explain("aten::fmax")}
    assert rows["aten::fmax"]["resolved"] == "aten::fmax.out"
    assert rows["aten::fmax"]["falls_back"] and rows["aten::fmax.out"]["falls_back"]
    assert not explain("aten::add.Tensor")[0]["falls_back"]
    assert explain("aten::add_.Tensor")[0]["resolved"] == "aten::add.out"
    assert explain("aten::max.dim")[0]["resolved"] == "aten::max.dim_max"
    assert explain("aten::no_such_operator") == []


def test_policy_at_run_time():
    x = torch.ones(3, device="npu")
    before = torch.npu.get_fallback()
    try:
        torch.npu.set_fallback("error")
        with pytest.raises(RuntimeError, match="ERR01007"):
            torch.fmax(x, x)
        torch.npu.set_fallback("silent")
        torch.fmax(x, x)
    finally:
        torch.npu.set_fallback(before)


def test_debug_log_prints_each_call(run_python):
    run = run_python(
        FMAX, NPU_FALLBACK="silent", ASCEND_GLOBAL_LOG_LEVEL="0", SLOG_PRINT_TO_STDOUT="1"
    )
    assert re.search(r"aten::fmax: rung 4: Float\[3\]", run.stdout)


def test_operators_of_others_warn_under_their_own_name(run_python):
    code = """
import torch, torch_npu
library = torch.library.Library("mylib", "DEF")
library.define("nms(Tensor x) -> Tensor")
library.impl("nms", lambda x: x.clone(), "CPU")
x = torch.ones(3, device="npu")
torch.ops.mylib.nms(x); torch.ops.mylib.nms(x)
"""
    assert warnings_in(run_python(code)) == ["mylib::nms"]


def test_two_sparse_reductions_say_that_they_fall_back(run_python):
    done = run_python("""
import torch, torch_npu
x = torch.tensor([[1.0, 0.0], [2.0, 3.0]]).to_sparse_csr()
y = torch.sparse_csr_tensor(x.crow_indices().npu(), x.col_indices().npu(), x.values().npu())
for _ in range(2):
    assert torch._sparse_csr_sum(y, [1], keepdim=True).values().tolist() == [1.0, 5.0]
""")
    line = "The operator 'aten::_sparse_csr_sum.dim_dtype' is not currently supported on the NPU"
    assert done.stderr.count(line) == 1 and "will fall back to CPU" in done.stderr
