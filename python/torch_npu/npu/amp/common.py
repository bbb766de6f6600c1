# SPDX-License-Identifier: Apache-2.0
"""Whether mixed precision can be had at all."""

from torch_npu.npu._device import is_available

__all__ = ["amp_definitely_not_available"]


def amp_definitely_not_available() -> bool:
    return not is_available()
