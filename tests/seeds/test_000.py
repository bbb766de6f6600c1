# SPDX-License-Identifier: Apache-2.0
"""seeds/000, "an operator that is not supported": the same warning, and the right result."""

import interpreter
import os
import re
import subprocess
import sys

import torch

SNIPPET = """
import torch
import torch_npu

torch.manual_seed(0)
a, b = torch.randn(1, 3, 3), torch.randn(2, 3, 3)
result = torch.linalg.lstsq(a.npu(), b.npu())
print(tuple(result.solution.shape))
torch.save(result.solution.cpu(), FILE)
"""
WARNING = (
    r"\[W[^\]]*\] Warning: CAUTION: The operator 'aten::linalg_lstsq\.out' is not currently "
    r"supported on the NPU backend and will fall back to run on the CPU\. This may have "
    r"performance implications\. \(function npu_cpu_fallback\)"
)
ERROR = (
    r"\[ERROR\] \d{4}-\d{2}-\d{2}-\d{2}:\d{2}:\d{2} \(PID:\d+, Device:\d+, RankID:-1\) ERR01007 "
    r"OPS feature not supported"
)


def run(tmp_path, **variables):
    code = SNIPPET.replace("FILE", repr(str(tmp_path / "solution.pt")))
    return interpreter.run(
        ["-c", code],
        cwd=tmp_path,
        env={**os.environ, **variables},
        timeout=120,
    )


def test_warning_and_result(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert sum(bool(re.fullmatch(WARNING, line)) for line in lines) == 1, done.stderr
    # Whatever else lstsq reaches may warn too, in the same words; nothing else speaks.
    assert all("CAUTION: The operator 'aten::" in line for line in lines), done.stderr
    assert done.stdout.strip() == "(2, 3, 3)"
    torch.manual_seed(0)
    a, b = torch.randn(1, 3, 3), torch.randn(2, 3, 3)
    expected = torch.linalg.lstsq(a, b).solution
    torch.testing.assert_close(torch.load(tmp_path / "solution.pt"), expected)


def test_forbidden(tmp_path):
    done = run(tmp_path, NPU_FALLBACK="error")
    assert done.returncode == 1
    assert "RuntimeError: " in done.stderr
    assert re.search(ERROR + r"\s*$", done.stderr), done.stderr
    assert "aten::linalg_lstsq.out" in done.stderr
