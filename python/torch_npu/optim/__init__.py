# SPDX-License-Identifier: Apache-2.0
"""Optimizers that update all parameters of a group in one call of the device."""

from torch_npu.optim._adam import NpuFusedAdam, NpuFusedAdamP, NpuFusedAdamW
from torch_npu.optim._base import NpuFusedOptimizerBase
from torch_npu.optim._bert import NpuFusedBertAdam, NpuFusedLamb
from torch_npu.optim._gradient import (
    NpuFusedAdadelta,
    NpuFusedRMSprop,
    NpuFusedRMSpropTF,
    NpuFusedSGD,
)

__all__ = [
    "NpuFusedAdadelta",
    "NpuFusedAdam",
    "NpuFusedAdamP",
    "NpuFusedAdamW",
    "NpuFusedBertAdam",
    "NpuFusedLamb",
    "NpuFusedOptimizerBase",
    "NpuFusedRMSprop",
    "NpuFusedRMSpropTF",
    "NpuFusedSGD",
]
