# SPDX-License-Identifier: Apache-2.0
"""Pinned host memory: which tensors are pinned, copies in flight, the cache."""

import pytest
import torch
import torch_npu  # noqa: F401
from child import run_child
from gpu import pins_for_cuda
from programs import program

pytestmark = pytest.mark.modes


def test_pin_memory_and_is_pinned():
    plain = torch.arange(100.0)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and not plain.is_pinned()
    assert pinned.device.type == "cpu"
    assert torch.equal(pinned, plain)
    assert pinned[10:].is_pinned()
    assert pinned.pin_memory() is pinned
    assert not pinned.clone().is_pinned()


@pins_for_cuda
def test_empty_pinned():
    assert torch.empty(3, pin_memory=True).is_pinned()


def test_empty_tensor():
    x = torch.empty(0, 3).pin_memory()
    assert x.shape == (0, 3) and x.device.type == "cpu"


def test_npu_tensors_are_not_pinned():
    x = torch.ones(2, device="npu")
    assert not x.is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.pin_memory()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(2, device="npu", pin_memory=True)


def test_non_blocking_copies_are_right():
    source = torch.arange(1000.0).pin_memory()
    there = source.to("npu", non_blocking=True)
    back = torch.empty(1000, pin_memory=True)
    back.copy_(there, non_blocking=True)
    torch.npu.synchronize()
    assert torch.equal(back, source)


def test_freed_block_is_reused():
    pointer = torch.empty(5000, pin_memory=True).data_ptr()
    assert torch.empty(5000, pin_memory=True).data_ptr() == pointer


def test_block_is_not_reused_while_a_copy_reads_it():
    run_child(
        """
        import torch, torch_npu
        torch.ones(1, device="npu")
        for i in range(20):
            source = torch.full((4096,), float(i)).pin_memory()
            there = source.to("npu", non_blocking=True)
            del source
            torch.full((4096,), -1.0).pin_memory()  # would take the same block
            assert there.sum().item() == 4096 * i, i
        """,
        NPU_HOST_ASYNC="1",
        NPU_HOST_DELAY_US="2000",
    )


def test_interior_view_is_recorded_too():
    run_child(
        program(__file__, "_interior_view_is_recorded_too"),
        NPU_HOST_ASYNC="1",
        NPU_HOST_DELAY_US="2000",
    )


@pins_for_cuda
def test_empty_host_cache():
    torch.empty(1 << 20, pin_memory=True)
    if hasattr(torch.accelerator, "empty_host_cache"):
        torch.accelerator.empty_host_cache()
    assert torch.empty(1 << 20, pin_memory=True).is_pinned()


def test_data_loader_pins():
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)
    for (batch,) in loader:
        assert batch.is_pinned()


def test_cpu_dlpack_does_not_mind():
    assert torch.ones(2).__dlpack_device__()[0] == 1
