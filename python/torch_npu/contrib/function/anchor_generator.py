# SPDX-License-Identifier: Apache-2.0
"""Comes with npu operators."""

from torch_npu.contrib._later import later

__all__ = ["npu_single_level_responsible_flags"]

npu_single_level_responsible_flags = later("npu_single_level_responsible_flags")
