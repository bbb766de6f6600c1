# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedAdamW from."""

from torch_npu.optim._adam import NpuFusedAdamW

__all__ = ["NpuFusedAdamW"]
