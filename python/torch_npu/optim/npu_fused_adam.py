# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedAdam from."""

from torch_npu.optim._adam import NpuFusedAdam

__all__ = ["NpuFusedAdam"]
