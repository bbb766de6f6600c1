# SPDX-License-Identifier: Apache-2.0
"""Loss scaling for parameters that are sharded over processes."""

import torch
import torch.distributed as dist

from .grad_scaler import GradScaler

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """A GradScaler whose ranks agree: an overflow in one rank's shard skips the step of all.

    `process_group` is the group the parameters are sharded over, all ranks unless given.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        dynamic: bool = True,
        enabled: bool = True,
        process_group=None,
    ):
        super().__init__(
            init_scale, growth_factor, backoff_factor, growth_interval, dynamic, enabled
        )
        self.process_group = process_group

    def _agree(self, found: dict[torch.device, torch.Tensor]) -> None:
        if dist.is_available() and dist.is_initialized():
            for flag in found.values():
                dist.all_reduce(flag, op=dist.ReduceOp.MAX, group=self.process_group)
