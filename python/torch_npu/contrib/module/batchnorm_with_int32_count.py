# SPDX-License-Identifier: Apache-2.0
"""Batch norms that count their batches in int32."""

import torch
from torch import nn

__all__ = ["FastBatchNorm1d", "FastBatchNorm2d", "FastBatchNorm3d", "FastSyncBatchNorm"]


class _CountsInInt32:
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.track_running_stats:
            self.num_batches_tracked = self.num_batches_tracked.to(torch.int32)


class FastBatchNorm1d(_CountsInInt32, nn.BatchNorm1d):
    pass


class FastBatchNorm2d(_CountsInInt32, nn.BatchNorm2d):
    pass


class FastBatchNorm3d(_CountsInInt32, nn.BatchNorm3d):
    pass


class FastSyncBatchNorm(_CountsInInt32, nn.SyncBatchNorm):
    pass
