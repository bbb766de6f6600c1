# SPDX-License-Identifier: Apache-2.0
"""torch.amp.GradScaler for npu: a switch for a constant scale, and one overflow for all."""

import torch

__all__ = ["GradScaler"]


class GradScaler(torch.amp.GradScaler):
    """`dynamic=False` keeps the scale as it starts; steps with inf or nan are still skipped.

    An overflow in one optimizer's gradients skips every step until update(): the gradients of all
    of them come from the same scaled losses.
    """

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
        self._overflows: list[torch.Tensor] = []
        super().__init__(
            "npu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )

    def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
        found = super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)
        self._agree(found)
        # Added up on the device: an optimizer that reads the flag itself does not wait.
        for device, flag in found.items():
            for before in self._overflows:
                flag.add_(before.to(device, non_blocking=True))
        self._overflows = list(found.values()) or self._overflows
        return found

    def _agree(self, found: dict[torch.device, torch.Tensor]) -> None:
        """Lets processes tell each other; `found` is not zero where a gradient is inf or nan."""

    def update(self, new_scale=None) -> None:
        self._overflows = []
        if self._enabled and not self._dynamic and new_scale is None:
            new_scale = self._scale
        super().update(new_scale)
