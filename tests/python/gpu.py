# SPDX-License-Identifier: Apache-2.0
"""What PyTorch itself does differently where it sees a GPU."""

import pytest
import torch

GPU = torch.cuda.is_available()
starts_threads = pytest.mark.skipif(
    GPU, reason="PyTorch starts autograd threads for the GPU itself"
)
pins_for_cuda = pytest.mark.skipif(
    GPU, reason="torch.empty(pin_memory=True) is CUDA's pinned memory where there is a GPU"
)
