# SPDX-License-Identifier: Apache-2.0
"""Mixes the channels of two tensors."""

import torch
from torch import Tensor, nn

__all__ = ["ChannelShuffle"]


class ChannelShuffle(nn.Module):
    """Channels of both inputs, group by group in turn, in two halves or as one tensor."""

    def __init__(self, in_channels: int, groups: int = 2, split_shuffle: bool = True):
        super().__init__()
        if in_channels % groups:
            raise ValueError(f"ChannelShuffle: {in_channels} channels are not {groups} groups")
        self.in_channels = in_channels
        self.groups = groups
        self.split_shuffle = split_shuffle

    def forward(self, x1: Tensor, x2: Tensor):
        if self.split_shuffle:
            mixed = torch.stack([x1, x2], dim=2).flatten(1, 2)
            return mixed.chunk(2, dim=1)
        order = torch.arange(self.in_channels, device=x1.device)
        order = order.view(self.groups, -1).t().flatten()
        return torch.cat([x1, x2], dim=1).index_select(1, order)
