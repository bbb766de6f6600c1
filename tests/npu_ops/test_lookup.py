# SPDX-License-Identifier: Apache-2.0
"""Operators looked up without Python's attribute access: TorchScript, saved files, the dispatcher."""

import interpreter
import pytest
import torch
from torch_npu.utils import define_operators

SCRIPT = """
import sys
import torch
import torch_npu

def norm(x, gamma):
    return torch.ops.npu.npu_rms_norm(x, gamma)[0]

torch.jit.script(norm).save(sys.argv[1])
"""
LOAD = """
import sys
import torch
import torch_npu

x, gamma = torch.arange(8.0).view(2, 4).npu(), torch.ones(4).npu()
if sys.argv[2] == "yes":
    assert torch_npu.utils.define_operators("npu_rms_norm") == 1
try:
    norm = torch.jit.load(sys.argv[1])
except RuntimeError as error:
    print("unknown" if "npu_rms_norm" in str(error) else error)
else:
    found = norm(x, gamma)
    print(torch.equal(found, torch.ops.npu.npu_rms_norm(x, gamma)[0]))
"""


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


THREADS = """
import sys, threading
import torch, torch_npu

sys.setswitchinterval(1e-6)
names = [n for n, row in torch_npu._C._custom_operators("npu").items() if row[0]][:60]
together, without = threading.Barrier(4), []

def ask():
    for name in names:
        together.wait()
        for overload in getattr(torch.ops.npu, name).overloads():
            whole = f"npu::{name}" + ("" if overload == "default" else f".{overload}")
            keys = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
            if not any(torch._C._dispatch_has_kernel_for_dispatch_key(whole, key) for key in keys):
                without.append(whole)

threads = [threading.Thread(target=ask) for _ in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
assert not without, without
"""


def test_threads_that_ask_at_the_same_time():
    """Each finds the operator with its kernels, not one that is only half there."""
    done = interpreter.run(["-c", THREADS], timeout=120)
    assert done.returncode == 0, done.stderr
