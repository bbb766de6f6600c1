# SPDX-License-Identifier: Apache-2.0
"""What PyTorch itself does differently where it sees a GPU."""

import pytest
import torch

GPU = torch.cuda.is_available()
starts_threads = pytest.mark.skipif(
    GPU, reason="PyTorch starts autograd threads for the GPU itself"
)
chosen_first = pytest.mark.skipif(
    GPU, reason="the library chooses the GPU, and PyTorch has no backward on cuda beside a plugin"
)
loads_by_itself = pytest.mark.skipif(
    bool(torch.version.cuda or torch.version.hip),
    reason="in a GPU build of torch the plugin loads on `import torch_npu` only",
)
pins_for_cuda = pytest.mark.skipif(
    GPU, reason="torch.empty(pin_memory=True) is CUDA's pinned memory where there is a GPU"
)
