# SPDX-License-Identifier: Apache-2.0
"""Position sensitive pooling of regions as a module."""

from torch import Tensor, nn

import torch_npu

__all__ = ["PSROIPool"]


class PSROIPool(nn.Module):
    """Each bin of a region is the mean of a channel of its own."""

    def __init__(
        self, pooled_height=7, pooled_width=7, spatial_scale=1 / 16.0, group_size=7, output_dim=22
    ):
        super().__init__()
        if not pooled_height == pooled_width == group_size:
            raise ValueError(
                "pooled_height, pooled_width and group_size must be the same, but are "
                f"{pooled_height}, {pooled_width} and {group_size}"
            )
        self.group_size = group_size
        self.spatial_scale = spatial_scale
        self.output_dim = output_dim

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        """`rois`: (batch, 5, n)."""
        return torch_npu.npu_ps_roi_pooling(
            features, rois, self.spatial_scale, self.group_size, self.output_dim
        )

    def extra_repr(self) -> str:
        return f"group_size={self.group_size}, spatial_scale={self.spatial_scale}, output_dim={self.output_dim}"
