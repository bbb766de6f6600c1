# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedRMSpropTF from."""

from torch_npu.optim._gradient import NpuFusedRMSpropTF

__all__ = ["NpuFusedRMSpropTF"]
