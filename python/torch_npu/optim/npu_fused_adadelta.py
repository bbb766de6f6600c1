# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedAdadelta from."""

from torch_npu.optim._gradient import NpuFusedAdadelta

__all__ = ["NpuFusedAdadelta"]
