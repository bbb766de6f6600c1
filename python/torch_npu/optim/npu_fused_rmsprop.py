# SPDX-License-Identifier: Apache-2.0
"""The module programs import NpuFusedRMSprop from."""

from torch_npu.optim._gradient import NpuFusedRMSprop

__all__ = ["NpuFusedRMSprop"]
