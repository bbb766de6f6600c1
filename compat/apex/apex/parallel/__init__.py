# SPDX-License-Identifier: Apache-2.0
"""apex.parallel: PyTorch's own classes do what apex's did."""

from __future__ import annotations

import torch
from torch.nn import SyncBatchNorm

__all__ = ["DistributedDataParallel", "SyncBatchNorm", "convert_syncbn_model"]


class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
    """PyTorch's, on the current device; apex's options that tune its own buckets are taken and unused."""

    def __init__(self, module, message_size=10_000_000, delay_allreduce=False, **options) -> None:
        known = {"shared_param", "allreduce_trigger_params", "retain_allreduce_buffers",
                 "allreduce_always_fp32", "num_allreduce_streams", "allreduce_communicators",
                 "gradient_average", "gradient_predivide_factor", "prof"}  # fmt: skip
        unknown = sorted(set(options) - known)
        if unknown:
            raise TypeError(
                f"apex.parallel.DistributedDataParallel: no option {', '.join(unknown)}. "
                "torch.nn.parallel.DistributedDataParallel takes PyTorch's."
            )
        if options.get("gradient_average") is False:
            raise NotImplementedError("gradient_average=False: register a communication hook.")
        # apex waits for all gradients, so parameters without one are no mistake there.
        super().__init__(module, find_unused_parameters=delay_allreduce)


def convert_syncbn_model(module, process_group=None, channel_last=False):
    """`channel_last` is a layout that the kernels see by themselves."""
    return SyncBatchNorm.convert_sync_batchnorm(module, process_group)
