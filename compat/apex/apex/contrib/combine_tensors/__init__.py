# SPDX-License-Identifier: Apache-2.0
"""Many tensors in one, as torch_npu.utils has them, under apex's names."""

from torch_npu.utils import (
    get_part_combined_tensor,
    is_combined_tensor_valid,
    npu_combine_tensors,
)

combine_npu = npu_combine_tensors

__all__ = [
    "combine_npu",
    "get_part_combined_tensor",
    "is_combined_tensor_valid",
    "npu_combine_tensors",
]
