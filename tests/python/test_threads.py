# SPDX-License-Identifier: Apache-2.0
"""The plugin's parallel work runs on PyTorch's threads: as many as torch.set_num_threads says."""

import threading

import pytest
import torch
import torch_npu


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_ranges_are_shared_by_threads(threads, n):
    """at::parallel_for is a plain loop in files that are compiled without OpenMP."""
    threads(n)
    assert torch_npu._C._threads_of_ranges(64) == n
    assert torch_npu._C._threads_of_ranges(1) == 1
    assert torch_npu._C._threads_of_ranges(0) == 0


class ThreadsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        ctx.seen.append((torch.get_num_threads(), threading.get_native_id()))
        return grad, None


@pytest.mark.parametrize("own_thread", (False, True))
def test_backward_uses_as_many_threads_as_its_caller(threads, own_thread):
    """Autograd's device thread lives on between passes; threads are counted per thread."""
    seen = []
    with torch.autograd.set_multithreading_enabled(own_thread):
        for n in (1, 3, 2, 1):
            threads(n)
            x = torch.ones(3, device="npu", requires_grad=True)
            ThreadsInBackward.apply(x, seen).sum().backward()
    assert [n for n, _ in seen] == [1, 3, 2, 1]
    assert {t != threading.get_native_id() for _, t in seen} == {own_thread}
