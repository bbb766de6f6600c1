# SPDX-License-Identifier: Apache-2.0
"""Comes with npu operators."""

from torch_npu.contrib._later import later

__all__ = ["npu_batched_multiclass_nms", "npu_multiclass_nms"]

npu_multiclass_nms = later("npu_multiclass_nms")
npu_batched_multiclass_nms = later("npu_batched_multiclass_nms")
