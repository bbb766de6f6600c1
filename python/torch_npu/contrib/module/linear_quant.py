# SPDX-License-Identifier: Apache-2.0
"""Comes with npu operators."""

from torch_npu.contrib._later import later

__all__ = ["LinearQuant"]

LinearQuant = later("LinearQuant")
