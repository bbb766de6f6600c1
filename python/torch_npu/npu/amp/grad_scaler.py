# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler for npu, with torch_npu's switch for a constant scale."""

import torch

__all__ = ["GradScaler"]


class GradScaler(torch.amp.GradScaler):
    """`dynamic=False` keeps the scale as it starts; steps with inf or nan are still skipped."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
    ):
        self._dynamic = dynamic
        super().__init__(
            "npu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )

    def update(self, new_scale=None) -> None:
        if self._enabled and not self._dynamic and new_scale is None:
            new_scale = self._scale
        super().update(new_scale)
