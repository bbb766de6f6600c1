# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedLamb from."""

from torch_npu.optim._bert import NpuFusedLamb

__all__ = ["NpuFusedLamb"]
