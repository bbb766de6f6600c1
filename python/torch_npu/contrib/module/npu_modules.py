# SPDX-License-Identifier: Apache-2.0
"""nn.Dropout under Ascend's old name."""

from torch import nn

__all__ = ["DropoutWithByteMask"]


class DropoutWithByteMask(nn.Dropout):
    """nn.Dropout: how the mask is stored is the device's own matter."""
