# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedAdamP from."""

from torch_npu.optim._adam import NpuFusedAdamP

__all__ = ["NpuFusedAdamP"]
