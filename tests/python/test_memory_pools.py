# SPDX-License-Identifier: Apache-2.0
"""MemPool keeps memory apart; NPUPluggableAllocator gives it."""

import gc
import shutil
import subprocess
import threading

import pytest
import torch
from child import run_child

MIB = 1 << 20


def pool_ids():
    return {tuple(s["segment_pool_id"]) for s in torch.npu.memory_snapshot()}


def segment_of(tensor):
    address = tensor.data_ptr()
    for segment in torch.npu.memory_snapshot():
        if segment["address"] <= address < segment["address"] + segment["total_size"]:
            return segment
    raise AssertionError("no segment holds the tensor")


def test_tensors_lie_in_their_pool():
    pool, other = torch.npu.MemPool(), torch.npu.MemPool()
    assert pool.id != other.id and pool.id != (0, 0)
    with torch.npu.use_mem_pool(pool):
        a = torch.ones(1000, device="npu")
        with torch.npu.use_mem_pool(other):
            b = a + 1
        c = a * 2
    outside = c + 1
    places = [tuple(segment_of(t)["segment_pool_id"]) for t in (a, b, c, outside)]
    assert places == [pool.id, other.id, pool.id, (0, 0)]
    assert outside.sum().item() == 3000
    assert {tuple(s["segment_pool_id"]) for s in pool.snapshot()} == {pool.id}
    address = a.data_ptr()
    del a
    assert torch.empty(1000, device="npu").data_ptr() != address
    with torch.npu.use_mem_pool(pool):
        assert torch.empty(1000, device="npu").data_ptr() == address


def test_memory_is_kept_with_the_pool_and_freed_with_it():
    torch.npu.empty_cache()
    before = torch.npu.memory_reserved()
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        assert pool.use_count() == 2
        x = torch.empty(64 * MIB, dtype=torch.uint8, device="npu")
        del x
    assert pool.use_count() == 1
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved() >= before + 64 * MIB
    del pool
    gc.collect()
    assert torch.npu.memory_reserved() == before


def test_live_tensors_outlive_their_pool():
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        x = torch.arange(100, device="npu")
    identity = pool.id
    del pool
    gc.collect()
    assert x.sum().item() == 4950
    del x
    torch.npu.empty_cache()
    assert identity not in pool_ids()


def test_other_threads_are_left_alone():
    pool = torch.npu.MemPool()
    found = []
    with torch.npu.use_mem_pool(pool):
        thread = threading.Thread(target=lambda: found.append(torch.ones(10, device="npu")))
        thread.start()
        thread.join()
    assert tuple(segment_of(found[0])["segment_pool_id"]) == (0, 0)


def test_an_error_inside_ends_the_pool():
    pool = torch.npu.MemPool()
    with pytest.raises(ZeroDivisionError), torch.npu.use_mem_pool(pool):
        1 / 0  # noqa: B018
    assert tuple(segment_of(torch.ones(10, device="npu"))["segment_pool_id"]) == (0, 0)


def test_training_in_a_pool():
    pool = torch.npu.MemPool(no_split=True)
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    wanted = model(x).square().sum().item()
    with torch.npu.use_mem_pool(pool):
        moved = model.npu()
        loss = moved(x.npu()).square().sum()
        loss.backward()
    assert loss.item() == pytest.approx(wanted, rel=1e-6)
    assert moved.weight.grad.abs().sum().item() > 0


SOURCE = r"""
#include <stdlib.h>
#include <sys/types.h>
static long taken, given;
void* my_alloc(ssize_t size, int device, void* stream) {
  (void)device; (void)stream; ++taken;
  return aligned_alloc(512, (size + 511) / 512 * 512);
}
void my_free(void* ptr, ssize_t size, int device, void* stream) {
  (void)size; (void)device; (void)stream; ++given;
  free(ptr);
}
long counts(void) { return taken * 1000000 + given; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("pluggable")
    (folder / "mine.c").write_text(SOURCE)
    path = folder / "libmine.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-o", path, folder / "mine.c"], check=True, timeout=60
    )
    return str(path)


PLUGGABLE = """
import ctypes, gc, sys, torch, torch_npu
path = sys.argv[1]
mine = torch.npu.NPUPluggableAllocator(path, "my_alloc", "my_free")
counts = lambda: divmod(ctypes.CDLL(path).counts(), 1000000)
"""


def test_memory_from_a_library(library):
    run_child(
        PLUGGABLE
        + """
pool = torch.npu.MemPool(mine.allocator())
with torch.npu.use_mem_pool(pool):
    x = torch.ones(3 << 20, device="npu")
    y = x * 2
assert counts()[0] >= 1 and counts()[1] == 0, counts()
taken = counts()[0]
assert (y + torch.ones(3 << 20, device="npu")).sum().item() == 3 * (3 << 20)
assert counts()[0] == taken
del x, y, pool
gc.collect()
torch.npu.empty_cache()
assert counts() == (taken, taken), counts()
try:
    torch.npu.NPUPluggableAllocator(path, "my_alloc", "nonsense")
except RuntimeError as e:
    assert "has no function nonsense" in str(e)
else:
    raise AssertionError
try:
    torch.npu.change_current_allocator(mine)
except RuntimeError as e:
    assert "Can't swap an already initialized allocator" in str(e), e
else:
    raise AssertionError
assert torch.npu.get_allocator_backend() == "native"
""",
        library,
    )


def test_all_memory_from_a_library(library):
    run_child(
        PLUGGABLE
        + """
torch.npu.change_current_allocator(mine)
assert torch.npu.get_allocator_backend() == "pluggable"
x = torch.randn(100, 100, device="npu", requires_grad=True)
(x @ x).sum().backward()
taken, given = counts()
assert taken >= 4 and x.grad.shape == (100, 100)
host = torch.arange(3000.0)
y = host.npu()
assert torch.equal(y.cpu(), host) and torch.equal(y.clone().zero_().cpu(), host * 0)
assert torch.equal(y.double()[::2].cpu(), host.double()[::2])
w = x.detach().cpu().requires_grad_()
(w @ w).sum().backward()
torch.testing.assert_close(x.grad.cpu(), w.grad)
del y
del x
gc.collect()
assert counts()[1] > given
""",
        library,
    )
