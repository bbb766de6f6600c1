# SPDX-License-Identifier: Apache-2.0
"""Region of interest align as a module."""

from torch import Tensor, nn
from torch.nn.modules.utils import _pair

import torch_npu

__all__ = ["ROIAlign"]


class ROIAlign(nn.Module):
    """Means of bilinear samples in the bins of each region.

    `sampling_ratio` 0 takes as many samples as a bin has pixels. `aligned` moves regions by half a
    pixel; its default is not torchvision's.
    """

    def __init__(self, output_size, spatial_scale, sampling_ratio, aligned=True):
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = spatial_scale
        self.sampling_ratio = sampling_ratio
        self.aligned = aligned

    def forward(self, input_tensor: Tensor, rois: Tensor) -> Tensor:
        """`rois`: (n, 5), the number of the image, then two corners."""
        if rois.dim() != 2 or rois.size(1) != 5:
            raise ValueError(f"expected rois of size [n, 5], but got {tuple(rois.shape)}")
        return torch_npu.npu_roi_align(
            input_tensor.float(), rois, self.spatial_scale, *self.output_size,
            self.sampling_ratio, 3 if self.aligned else 0,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, spatial_scale={self.spatial_scale}, "
            f"sampling_ratio={self.sampling_ratio}, aligned={self.aligned}"
        )
