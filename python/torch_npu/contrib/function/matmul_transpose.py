# SPDX-License-Identifier: Apache-2.0
"""A product with a transposed second factor."""

from torch import Tensor

__all__ = ["matmul_transpose"]


def matmul_transpose(tensor1: Tensor, tensor2: Tensor) -> Tensor:
    """tensor1 @ tensor2.transpose(-2, -1), which needs no copy of the second."""
    return tensor1 @ tensor2.transpose(-2, -1)
