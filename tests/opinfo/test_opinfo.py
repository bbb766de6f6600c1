# SPDX-License-Identifier: Apache-2.0
"""The whole OpInfo database; and that the sweep notices what it is there to notice."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

# `make test-full` sets it: every sample, and the reference inputs.
FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"
# Fewer would mean that the sweep lost its way. Two samples per case, or all of them.
LEAST = {"forward": 11000, "gradient": 5000, "inplace": 2200, "out": 17000, "empty": 17000}
LEAST_FULL = {**LEAST, "forward": 90000, "reference": 60000, "gradient": 40000}


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["fast", "all"])
def test_every_operator_answers_what_the_cpu_answers(kernels, tmp_path):
    out = tmp_path / "sweep.json"
    quick = [] if FULL else ["--quick"]
    command = [sys.executable, str(HERE / "sweep.py"), "--kernels", kernels, *quick]
    run = subprocess.run(
        [*command, "--workers", "2", "--json", str(out)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-3000:]
    rows = json.loads(out.read_text())["rows"]
    for mode, least in (LEAST_FULL if FULL else LEAST).items():
        compared = sum(row["compared"] for row in rows if row["mode"] == mode)
        assert compared > least, (mode, compared)
    report = subprocess.run(
        [sys.executable, str(HERE / "report.py"), "--json", str(out)],
        capture_output=True,
        text=True,
    )
    assert report.returncode == 0, report.stdout[-6000:] + report.stderr[-3000:]


def test_a_wrong_result_is_noticed():
    import compare
    import torch
    import torch_npu  # noqa: F401

    right = torch.tensor([1.0, 2.0])
    with pytest.raises(compare.Mismatch, match="differs"):
        compare.check(right, torch.tensor([1.0, 2.0000002], device="npu"), "x")
    with pytest.raises(compare.Mismatch, match="strides"):
        compare.check(torch.ones(2, 3), torch.ones(3, 2, device="npu").t(), "x")
    with pytest.raises(compare.Mismatch, match="is on cpu"):
        compare.check(right, right, "x")
    with pytest.raises(compare.Mismatch, match="dtype"):
        compare.check(right, right.double().to("npu"), "x")
    compare.check(right, right.to("npu"), "x")


def test_aliases_and_versions_are_noticed():
    import compare
    import torch

    def trace(function):
        x = torch.ones(4)
        found = compare.Trace([x])
        found.finish(function(x))
        return found

    expected = trace(lambda x: x.add_(1))
    expected.check(trace(lambda x: x.mul_(2)), "x")
    with pytest.raises(compare.Mismatch, match="versions"):
        expected.check(trace(lambda x: x + 1), "x")
    with pytest.raises(compare.Mismatch, match="is new memory"):
        trace(lambda x: x[1:]).check(trace(lambda x: x[1:].clone()), "x")
    with pytest.raises(compare.Mismatch, match="offset 2"):
        trace(lambda x: x[1:]).check(trace(lambda x: x[2:]), "x")


def test_the_verdict_knows_rounding_from_mistakes():
    import torch
    import verdict
    from torch.testing._internal.common_methods_invocations import op_db

    ops = {op.name: op for op in op_db if not op.variant_test_name}
    g = torch.Generator().manual_seed(1)
    a, b = torch.randn(64, 256, generator=g), torch.randn(256, 32, generator=g)

    def worst(op, tree, run, got):
        return verdict.judge(ops[op], run, tree, [run(tree)[0]], [got])[0]

    def product(tree, positive=False):
        return [tree[0] @ tree[1][0]]

    tree = (a, (b,), {})
    other_order = (a[:, 128:] @ b[128:]) + (a[:, :128] @ b[:128])
    assert worst("mm", tree, product, other_order) <= 1
    assert worst("mm", tree, product, a.bfloat16().float() @ b.bfloat16().float()) > 10
    assert worst("mm", tree, product, a[:, :-1] @ b[:-1]) > 10

    def exp(tree, positive=False):
        return [tree[0].exp()]

    assert worst("exp", (a, (), {}), exp, a.double().exp().float()) <= 1
    assert worst("exp", (a, (), {}), exp, a.exp() * (1 + 1e-5)) > 1


def test_infinities_and_masks_are_not_shaken_into_something_else():
    import torch
    import verdict

    change = verdict.moved_by(2.0**-20, seed=1)
    numbers = torch.tensor([complex(-float("inf"), 1), 2 - 3j], dtype=torch.complex128)
    moved = change(numbers)
    assert moved[0].real == -float("inf") and not moved.isnan().any()
    assert moved[1] != numbers[1]
    assert change(numbers.conj())[1].imag > 0
    with verdict.Shaken(change):
        mask = (torch.arange(3) > 1).to(torch.float64)
        half = torch.arange(3).to(torch.float64) / 2
    assert mask.tolist() == [0, 0, 1]
    assert half.tolist() != [0, 0.5, 1]


def test_a_crash_has_a_name():
    import sweep

    class Dies:
        def __getattr__(self, name):
            import os
            import signal

            os.kill(os.getpid(), signal.SIGSEGV)

    rows = sweep.sweep([("dies", Dies())], workers=1, wanted=sweep.Wanted([], []))
    assert rows[0]["op"] == "dies"
    assert "SIGSEGV" in rows[0]["failure"]


def test_the_report_counts():
    import report

    row = {"op": "a", "mode": "forward", "dtype": "float32", "compared": 1, "failure": None}
    rows = [
        row,
        {**row, "dtype": "int64", "failure": "sample 0 differs"},
        {**row, "dtype": "int8", "compared": 0, "random": 2},
        {**row, "op": "uniform", "compared": 0, "random": 2},
        {**row, "op": "b", "compared": 0, "nothing": 2},
    ]
    states = {key: found for key, (found, _) in report.pair_states(rows, "fast").items()}
    assert states["a", "float32"] == "right"
    assert states["a", "int64"] == "wrong"
    assert states["a", "int8"] == "wrong"
    assert states["uniform", "float32"] == "random"
    assert states["b", "float32"] == "wrong"


@pytest.mark.parametrize("visible", [None, "0,1"])
@pytest.mark.parametrize(("driver", "hidden"), [(None, True), ("host", True), ("cuda", False)])
def test_children_see_gpus_unless_the_driver_is_the_hosts(driver, hidden, visible, monkeypatch):
    import sweep

    monkeypatch.setattr(sweep, "shown_gpus", None)
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    for name, value in (("CUDA_VISIBLE_DEVICES", visible), ("NPU_DRIVER", driver)):
        monkeypatch.setenv(name, value or "")
        if value is None:
            monkeypatch.delenv(name)
    sweep.hide_gpus()
    # The parent must not call the CUDA runtime, which no forked child can use again.
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] == "1"
    sweep.show_gpus_again()
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == ("" if hidden else visible)
