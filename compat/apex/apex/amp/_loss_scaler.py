# SPDX-License-Identifier: Apache-2.0
"""The scale of one loss. It lives on the device: nothing here waits for it but loss_scale()."""

from __future__ import annotations

import torch


class LossScaler:
    def __init__(
        self,
        loss_scale: float | str,
        *,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        scale_window: int = 2000,
        min_loss_scale: float | None = None,
        max_loss_scale: float = 2.0**24,
    ) -> None:
        self.dynamic = loss_scale == "dynamic"
        self._first = min(max_loss_scale, init_scale) if self.dynamic else float(loss_scale)
        self._first_unskipped = 0
        self._growth, self._backoff, self._window = growth_factor, backoff_factor, scale_window
        self._least, self._most = min_loss_scale, max_loss_scale
        self._scale: torch.Tensor | None = None
        self._unskipped: torch.Tensor | None = None

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        if self._scale is None:
            self._scale = torch.full((), self._first, dtype=torch.float32, device=loss.device)
            self._unskipped = torch.full(
                (), self._first_unskipped, dtype=torch.int32, device=loss.device
            )
        return loss.float() * self._scale.to(loss.device, non_blocking=True)

    def inverse(self, device: torch.device) -> torch.Tensor:
        return self._scale.double().reciprocal().float().to(device, non_blocking=True)

    def update(self, overflowed: torch.Tensor) -> None:
        """`overflowed` is 0 where every gradient is finite."""
        if not self.dynamic:
            return
        flag = overflowed.reshape(()).to(self._scale.device, non_blocking=True)
        torch._amp_update_scale_(
            self._scale, self._unskipped, flag, self._growth, self._backoff, self._window
        )
        self._scale.clamp_(self._least, self._most)

    def loss_scale(self) -> float:
        return self._first if self._scale is None else self._scale.item()

    def unskipped(self) -> int:
        return self._first_unskipped if self._unskipped is None else int(self._unskipped.item())

    def load(self, loss_scale: float, unskipped: int) -> None:
        self._first, self._first_unskipped = float(loss_scale), int(unskipped)
        if self._scale is not None:
            self._scale.fill_(loss_scale)
            self._unskipped.fill_(unskipped)
