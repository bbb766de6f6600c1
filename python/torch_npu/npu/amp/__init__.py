# SPDX-License-Identifier: Apache-2.0
"""Mixed precision under torch.npu's names; the work is torch.amp's."""

from .autocast_mode import autocast, custom_bwd, custom_fwd
from .common import amp_definitely_not_available
from .grad_scaler import GradScaler
from .sharded_grad_scaler import ShardedGradScaler

__all__ = [
    "GradScaler", "ShardedGradScaler", "amp_definitely_not_available", "autocast", "custom_bwd",
    "custom_fwd",
]  # fmt: skip
