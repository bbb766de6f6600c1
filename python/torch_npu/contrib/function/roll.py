# SPDX-License-Identifier: Apache-2.0
"""torch.roll under contrib's name."""

import torch
from torch import Tensor

__all__ = ["roll"]


def roll(input1: Tensor, shifts, dims) -> Tensor:
    return torch.roll(input1, shifts, dims)
