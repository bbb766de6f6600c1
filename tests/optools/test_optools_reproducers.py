# SPDX-License-Identifier: Apache-2.0
"""Reproducers: a captured call as a script of its own, which needs torch only."""

import os
import re
import sys

import interpreter
import op_tools
import pytest
import torch
from op_tools import captures
from op_tools.captures import reproducer
from optools_helpers import output
from report_pages import read, step_capture

pytestmark = pytest.mark.usefixtures("on_cpu")


def test_a_reproducer_stands_alone(capsys, bad_gelu):
    folder = step_capture(1)
    output(capsys, "report", folder, "--judge", "--reproducers", "1", "-o", "page.html")
    (name,) = os.listdir("reproducers")
    script = os.path.join("reproducers", name, "reproduce.py")
    assert "op_tools" not in read(script)
    run = interpreter.run([script, "cpu"])
    assert run.returncode == 0, run.stderr
    # Here the kernel is right: what was captured is not what it gives.
    far = [float(re.search(r"at most (\S+) from", line)[1]) for line in run.stdout.splitlines()]
    assert far[0] < 1e-6 < 1e-5 < far[1]


def test_a_reproducer_of_numbers_python_has_no_word_for(capsys):
    """inf, nan and complex numbers of them, in a script that runs."""
    inf, nan = float("inf"), float("nan")
    tool = op_tools.OpCapture()
    with tool:
        for value in (complex(inf, nan), complex(-0.0, -inf), complex(1, 2), nan, -inf):
            torch.zeros(3, dtype=torch.complex64).fill_(value)
    records = [r for r in captures.open(tool.folder) if r.op == "aten::fill_.Scalar"]
    assert len(records) == 5
    for record in records:
        path = reproducer.write(record, f"made{record.number}")
        scope = {"__name__": "__main__", "__file__": path}
        sys_argv, sys.argv = sys.argv, [path]
        try:
            exec(compile(read(path), path, "exec"), scope)
        finally:
            sys.argv = sys_argv
        (got, *_) = scope["got"]
        expected = record.outputs[0].load()
        assert torch.equal(torch.view_as_real(got).isnan(), torch.view_as_real(expected).isnan())
        assert torch.equal(
            torch.view_as_real(got).nan_to_num(), torch.view_as_real(expected).nan_to_num()
        )


def test_tensors_of_a_reproducer_are_whole_or_not_there(monkeypatch):
    import safetensors.torch

    tool = op_tools.OpCapture()
    with tool:
        torch.ones(3).sin()
    record = next(r for r in captures.open(tool.folder) if r.op == "aten::sin")
    reproducer.write(record, "made")
    with open("made/tensors.safetensors", "rb") as file:
        before = file.read()

    def fails(tensors, path):
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(safetensors.torch, "save_file", fails)
    with pytest.raises(OSError, match="no space"):
        reproducer.write(record, "made")
    with open("made/tensors.safetensors", "rb") as file:
        assert file.read() == before
    assert sorted(os.listdir("made")) == ["call.json", "reproduce.py", "tensors.safetensors"]


def test_reproducers_of_a_whole_step(capsys):
    folder = step_capture(1, foreach=True)
    written = 0
    for record in captures.open(folder):
        script = reproducer.write(record, f"all/{reproducer.folder_name(record)}")
        written += 1
        compile(read(script), script, "exec")
    assert written > 15
    for op in (
        "aten::addmm",
        "aten::native_layer_norm_backward",
        "aten::_foreach_add_.List",
        "aten::mm",
    ):
        record = next(captures.open(folder).select(op=re.escape(op)))
        script = f"all/{reproducer.folder_name(record)}/reproduce.py"
        run = interpreter.run([script])
        assert run.returncode == 0, run.stderr
        said = [line for line in run.stdout.splitlines() if "captured" in line]
        assert said and all("at most 0 from" in line for line in said), run.stdout
