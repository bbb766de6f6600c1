# SPDX-License-Identifier: Apache-2.0
"""Mixed precision under torch.npu's names; the work is torch.amp's."""

import functools

import torch

from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="npu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="npu")


class autocast(torch.amp.autocast):
    """torch.amp.autocast("npu", ...)."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
    ):
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
