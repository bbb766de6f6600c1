# SPDX-License-Identifier: Apache-2.0
"""torch.amp.autocast for npu, and the decorators for autograd functions."""

import functools

import torch

__all__ = ["autocast", "custom_bwd", "custom_fwd"]

custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="npu")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="npu")


class autocast(torch.amp.autocast):
    """torch.amp.autocast("npu", ...)."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True
    ):
        super().__init__("npu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
