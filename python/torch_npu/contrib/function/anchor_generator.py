# SPDX-License-Identifier: Apache-2.0
"""Which anchors of a feature map answer for the boxes in an image."""

from torch import Tensor

import torch_npu

__all__ = ["npu_single_level_responsible_flags"]


def npu_single_level_responsible_flags(
    featmap_size, gt_bboxes: Tensor, stride, num_base_anchors: int
) -> Tensor:
    """1 for each anchor of the cells that hold the centre of a box, 0 elsewhere."""
    boxes = gt_bboxes if gt_bboxes.is_floating_point() else gt_bboxes.float()
    return torch_npu.npu_anchor_response_flags(boxes, featmap_size, stride, num_base_anchors)
