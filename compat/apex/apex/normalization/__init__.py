# SPDX-License-Identifier: Apache-2.0
"""apex.normalization: PyTorch's layers, which are one call of the device."""

from torch.nn import LayerNorm as FusedLayerNorm
from torch.nn import RMSNorm as FusedRMSNorm

__all__ = ["FusedLayerNorm", "FusedRMSNorm"]
