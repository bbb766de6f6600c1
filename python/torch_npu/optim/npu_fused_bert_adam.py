# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedBertAdam from."""

from torch_npu.optim._bert import NpuFusedBertAdam

__all__ = ["NpuFusedBertAdam"]
