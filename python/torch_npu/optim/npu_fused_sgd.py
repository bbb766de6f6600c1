# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedSGD from."""

from torch_npu.optim._gradient import NpuFusedSGD

__all__ = ["NpuFusedSGD"]
