# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedOptimizerBase from."""

from torch_npu.optim._base import NpuFusedOptimizerBase

__all__ = ["NpuFusedOptimizerBase"]
