# SPDX-License-Identifier: Apache-2.0
"""Rung 5: the CPU kernel works on copies, and only what it wrote goes back to the device."""

import pytest
from faulty import faulty_environment

WRITER = """
import torch, torch_npu
library = torch.library.Library("rung5", "DEF")
library.define("write(Tensor(a!) y, int value) -> ()")
meanwhile = None
def write(y, value):
    assert y.device.type == "cpu"
    y.fill_(value)
    meanwhile()  # another user of the same storage, while the kernel runs
library.impl("write", write, "CPU")
library.impl("write", write, "QuantizedCPU")
"""

# A kernel writes one view of a storage; before it returns, the device writes a disjoint one.
DISJOINT = """
def check(make_views, base):
    global meanwhile
    mine, other = make_views(base)
    meanwhile = lambda: other.fill_(5)
    torch.ops.rung5.write(mine, 3)
    torch.npu.synchronize()
    assert mine.eq(3).all(), mine
    assert other.eq(5).all(), other

flat = lambda: torch.zeros(64, device="npu")
check(lambda b: (b[:32], b[32:]), flat())
check(lambda b: (b[40:], b[:40]), flat())
check(lambda b: (b[::2], b[1::2]), flat())
check(lambda b: (b.view(8, 8)[:, 1:3], b.view(8, 8)[:, 3:]), flat())
check(lambda b: (b.view(8, 8).t()[2:5], b.view(8, 8).t()[5:]), flat())
check(lambda b: (b.view(4, 4, 4)[:, ::2, 1::2], b.view(4, 4, 4)[:, 1::2]), flat())
check(lambda b: (b.as_strided((4, 3), (16, 1), 2), b.as_strided((4, 2), (16, 1), 5)), flat())
check(lambda b: (b[7], b[8:]), flat())
half = torch.zeros(33, 3, dtype=torch.float16, device="npu")
check(lambda b: (b[:, 1], b[:, 2]), half)
"""


@pytest.mark.parametrize("disabled", ["", "copy"])
def test_a_written_view_leaves_the_rest_of_its_storage_alone(run_python, disabled):
    run_python(WRITER + DISJOINT, NPU_HOST_ACCESS="none", NPU_DISABLE_KIND=disabled)


def test_other_layouts_leave_the_rest_of_their_storage_alone(run_python):
    code = """
q = torch.quantize_per_tensor(torch.zeros(64, device="npu"), 1.0, 0, torch.qint8)
bytes_ = torch.empty(0, dtype=torch.int8, device="npu").set_(q.untyped_storage())
def check(mine, others):
    global meanwhile
    meanwhile = lambda: [o.fill_(5) for o in others]
    torch.ops.rung5.write(mine, 3)
    assert all(o.eq(5).all() for o in others), bytes_
    got = mine.int_repr()
    assert got.eq(3).all(), got
check(q[:32], [bytes_[32:]])
check(q[8:40], [bytes_[:8], bytes_[40:]])
"""
    run_python(WRITER + code, NPU_HOST_ACCESS="none")


def test_streams_that_write_disjoint_views(run_python):
    code = """
import threading
base = torch.zeros(256, 8, device="npu")
torch.npu.synchronize()
rounds, lost = 60, []
meet = threading.Barrier(2)
def work(column):
    view, stream = base[:, column], torch.npu.Stream()
    with torch.npu.stream(stream):
        for i in range(rounds):
            meet.wait()
            torch.fmax(torch.full((256,), float(i), device="npu"), view, out=view)
            stream.synchronize()
            lost.extend([i] if view.min().item() != i else [])
threads = [threading.Thread(target=work, args=(c,)) for c in (2, 3)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not lost, lost
assert base[:, :2].eq(0).all() and base[:, 4:].eq(0).all()
"""
    run_python(WRITER + code, NPU_HOST_ACCESS="none")


def test_an_out_tensor_survives_a_kernel_that_refuses(run_python):
    code = """
out = torch.full((8,), 7.0, device="npu")
try:
    torch.linalg.inv(torch.ones(2, 3, device="npu"), out=out)
except RuntimeError:
    pass
assert out.eq(7).all(), out
library.define("fail(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
def fail(x, out):
    raise ValueError("no")
library.impl("fail", fail, "CPU")
try:
    torch.ops.rung5.fail(out, out=out)
except ValueError:
    pass
assert out.eq(7).all(), out
other = torch.full((8,), 6.0, device="npu")
try:
    torch.ops.rung5.fail(out, out=other)
except ValueError:
    pass
assert other.eq(6).all(), other
"""
    run_python(WRITER + code, NPU_HOST_ACCESS="none")


def test_an_out_tensor_that_grows(run_python):
    code = """
x = torch.arange(12.0, device="npu")
storage = torch.full((4,), 9.0, device="npu")
out = storage[2:2]
import warnings; warnings.simplefilter("ignore")
torch.fmax(x, x, out=out)
assert out.eq(x).all() and storage.untyped_storage().nbytes() == (2 + 12) * 4
assert storage[:2].eq(9).all(), storage
"""
    run_python(WRITER + code, NPU_HOST_ACCESS="none")


def test_an_argument_that_did_not_arrive_is_not_written_back(run_python):
    code = """
import torch, torch_npu
used = torch.full((1000,), 7.0).pin_memory()  # what the next buffer of this size holds
del used
x = torch.full((1000,), 0.5).npu()
try:
    x.lgamma_()
except RuntimeError as error:
    assert "copy an argument to the host" in str(error), error
else:
    raise SystemExit("no error")
assert x.cpu().eq(0.5).all(), x.cpu()
# Nor does a later CPU kernel see it.
assert torch.equal(x.lgamma().cpu(), torch.full((1000,), 0.5).lgamma()), x.lgamma()
"""
    variables = {"NPU_FAULTY_HOST_ACCESS": "none", "NPU_FAULT": "memory.copy_to_host:1"}
    run_python(code, **faulty_environment(), **variables)
