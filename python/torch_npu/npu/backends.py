# SPDX-License-Identifier: Apache-2.0
"""The module programs import the attention switches from; they are torch.npu's."""

import torch

from ._precision import (
    enable_flash_sdp,
    enable_math_sdp,
    enable_mem_efficient_sdp,
    flash_sdp_enabled,
    math_sdp_enabled,
    mem_efficient_sdp_enabled,
    sdp_kernel,
)

__all__ = [
    "enable_flash_sdp", "enable_math_sdp", "enable_mem_efficient_sdp", "flash_sdp_enabled",
    "math_sdp_enabled", "mem_efficient_sdp_enabled", "preferred_linalg_library", "sdp_kernel",
]  # fmt: skip


def preferred_linalg_library(backend=None):
    """torch.backends.cuda's choice: remembered by PyTorch, asked by CUDA's operators only."""
    return torch.backends.cuda.preferred_linalg_library(backend)
