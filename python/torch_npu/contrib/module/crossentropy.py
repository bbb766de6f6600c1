# SPDX-License-Identifier: Apache-2.0
"""Cross entropy whose targets are a little uncertain."""

import torch
from torch import Tensor, nn

__all__ = ["LabelSmoothingCrossEntropy"]


class LabelSmoothingCrossEntropy(nn.Module):
    """The target gets 1 - smooth_factor, the other classes share the rest; mean over samples."""

    def __init__(self, num_classes: int = 1000, smooth_factor: float = 0.0):
        super().__init__()
        self.num_classes = num_classes
        self.on_value = 1.0 - smooth_factor
        self.off_value = smooth_factor / (num_classes - 1)

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        wanted = torch.full_like(pred, self.off_value)
        wanted.scatter_(1, target.long().unsqueeze(1), self.on_value)
        return -(wanted * torch.log_softmax(pred, dim=-1)).sum(-1).mean()
