# SPDX-License-Identifier: Apache-2.0
"""Operators looked up without Python's attribute access: TorchScript, saved files, the dispatcher."""

import interpreter
import pytest
import torch
from programs import program
from torch_npu.utils import define_operators

SCRIPT = """
import sys
import torch
import torch_npu

def norm(x, gamma):
    return torch.ops.npu.npu_rms_norm(x, gamma)[0]

torch.jit.script(norm).save(sys.argv[1])
"""
LOAD = program(__file__, "_load")


def test_a_saved_script(tmp_path):
    files = {name: tmp_path / f"{name}.py" for name in ("write", "read")}
    files["write"].write_text(SCRIPT)
    files["read"].write_text(LOAD)
    saved = str(tmp_path / "norm.pt")
    done = interpreter.run([str(files["write"]), saved], cwd=tmp_path, timeout=200)
    assert done.returncode == 0, done.stderr
    for first, said in (("no", "unknown"), ("yes", "True")):
        done = interpreter.run([str(files["read"]), saved, first], cwd=tmp_path, timeout=200)
        assert done.stdout.strip() == said, done.stderr


def test_the_dispatcher_knows_them():
    find = torch._C._dispatch_find_schema_or_throw
    assert define_operators("npu_swiglu", "atb::_npu_paged_attention") == 2
    assert find("npu::npu_swiglu", "") and find("atb::_npu_paged_attention", "")
    with pytest.raises(ValueError, match="Ascend has no operator npu_swiglo"):
        define_operators("npu_swiglo")


def test_all_of_them():
    assert define_operators() > 400
    assert torch._C._dispatch_find_schema_or_throw("npu::npu_normalize_batch", "")


THREADS = program(__file__, "_threads")


def test_threads_that_ask_at_the_same_time():
    """Each finds the operator with its kernels, not one that is only half there."""
    done = interpreter.run(["-c", THREADS], timeout=120)
    assert done.returncode == 0, done.stderr
