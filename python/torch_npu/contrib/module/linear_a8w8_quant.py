# SPDX-License-Identifier: Apache-2.0
"""Comes with npu operators."""

from torch_npu.contrib._later import later

__all__ = ["LinearA8W8Quant"]

LinearA8W8Quant = later("LinearA8W8Quant")
