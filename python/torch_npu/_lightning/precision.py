# SPDX-License-Identifier: Apache-2.0
"""Mixed precision of Lightning on npu: its plugins with autocast and loss scale of this device."""

from __future__ import annotations

import functools
from types import ModuleType

import torch

from torch_npu._lightning.naming import publish

MIXED = ("16-mixed", "bf16-mixed")


def install(connector: type, made: type, module: ModuleType) -> None:
    original = connector._check_and_init_precision
    for_fsdp = publish(_make_for_fsdp(module.FSDPPrecision), module)

    @functools.wraps(original)
    def check_and_init_precision(self):
        given = getattr(self, "_precision_plugin_flag", None) or getattr(
            self, "_precision_instance", None
        )
        if given is not None or not isinstance(self.accelerator, made):
            return original(self)
        asked = self._precision_flag if hasattr(self, "_precision_flag") else self._precision_input
        if isinstance(self.strategy, module.FSDPStrategy):
            return for_fsdp(asked)
        # These two have plugins of their own, or refuse one of the kinds.
        if asked not in MIXED or isinstance(
            self.strategy, (module.DeepSpeedStrategy, module.ModelParallelStrategy)
        ):
            return _on_npu(original(self), module.MixedPrecision)
        scaler = torch.npu.amp.GradScaler() if asked == "16-mixed" else None
        return module.MixedPrecision(asked, "npu", scaler)

    connector._check_and_init_precision = check_and_init_precision


def _on_npu(plugin, mixed: type):
    """Of a plugin that Lightning made for "cuda": the same for npu."""
    if isinstance(plugin, mixed):
        plugin.device = "npu"
    return plugin


def _make_for_fsdp(base: type) -> type:
    class NPUFSDPPrecision(base):
        """FSDPPrecision with autocast and a sharded loss scale on npu."""

        def __init__(self, precision: str, scaler=None) -> None:
            # The base makes a scaler for cuda with "16-mixed"; all else is the same in both.
            super().__init__("bf16-mixed" if precision == "16-mixed" else precision)
            self.precision = precision
            if precision == "16-mixed":
                from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

                self.scaler = scaler or ShardedGradScaler(device="npu")

        def forward_context(self):
            if self.precision not in MIXED:
                return super().forward_context()
            low = torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16
            return torch.autocast("npu", dtype=low)

    return NPUFSDPPrecision
