# SPDX-License-Identifier: Apache-2.0
"""The plugin's parallel work runs on PyTorch's threads: as many as torch.set_num_threads says."""

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
