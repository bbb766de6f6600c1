# SPDX-License-Identifier: Apache-2.0
"""Dropout as Ascend's old name has it."""

import torch
from torch import Tensor

__all__ = ["dropout_with_byte_mask"]


def dropout_with_byte_mask(
    input1: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """torch.nn.functional.dropout: how the mask is stored is the device's own matter."""
    return torch.nn.functional.dropout(input1, p, training, inplace)
