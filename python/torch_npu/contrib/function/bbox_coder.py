# SPDX-License-Identifier: Apache-2.0
"""Boxes as differences from other boxes, and back."""

import math

import torch
from torch import Tensor

__all__ = [
    "npu_bbox_coder_decode_xywh2xyxy",
    "npu_bbox_coder_encode_xyxy2xywh",
    "npu_bbox_coder_encode_yolo",
]

_LEAST = 1e-6


def _check(name: str, *boxes: Tensor) -> None:
    for box in boxes:
        if box.dim() != 2 or box.shape[1] != 4:
            raise ValueError(f"{name}: expected boxes of size [n, 4], but got {tuple(box.shape)}")
    if len({box.shape[0] for box in boxes}) != 1:
        raise ValueError(f"{name}: expected as many boxes of each kind")


def _centres(boxes: Tensor, border: float = 0.0) -> tuple[Tensor, Tensor]:
    """Middle and extent of boxes given by two corners; corners are pixels with `border` 1."""
    low, high = boxes[:, :2], boxes[:, 2:]
    return (low + high) * 0.5, high - low + border


def _per_column(values, like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)


def npu_bbox_coder_encode_xyxy2xywh(
    bboxes: Tensor,
    gt_bboxes: Tensor,
    means=(0.0, 0.0, 0.0, 0.0),
    stds=(1.0, 1.0, 1.0, 1.0),
    is_normalized: bool = False,
    normalized_scale: float = 10000.0,
) -> Tensor:
    """What leads from `bboxes` to `gt_bboxes`: (x, y) in widths, (w, h) as logarithms."""
    _check("npu_bbox_coder_encode_xyxy2xywh", bboxes, gt_bboxes)
    scale = normalized_scale if is_normalized else 1.0
    middle, extent = _centres(bboxes.float() * scale, 1.0)
    wanted, size = _centres(gt_bboxes.float() * scale, 1.0)
    deltas = torch.cat([(wanted - middle) / extent, (size / extent).log()], dim=1)
    return (deltas - _per_column(means, deltas)) / _per_column(stds, deltas)


def npu_bbox_coder_decode_xywh2xyxy(
    bboxes: Tensor,
    pred_bboxes: Tensor,
    means=(0.0, 0.0, 0.0, 0.0),
    stds=(1.0, 1.0, 1.0, 1.0),
    max_shape=(9999, 9999),
    wh_ratio_clip: float = 16 / 1000,
) -> Tensor:
    """The boxes that `pred_bboxes`, as encode_xyxy2xywh gives them, lead to, inside `max_shape`."""
    _check("npu_bbox_coder_decode_xywh2xyxy", bboxes, pred_bboxes)
    deltas = pred_bboxes.float()
    deltas = deltas * _per_column(stds, deltas) + _per_column(means, deltas)
    middle, extent = _centres(bboxes.float(), 1.0)
    most = abs(math.log(wh_ratio_clip))
    size = extent * deltas[:, 2:].clamp(-most, most).exp()
    middle = middle + extent * deltas[:, :2]
    corners = torch.cat([middle - (size - 1) * 0.5, middle + (size - 1) * 0.5], dim=1)
    height, width = max_shape
    return corners.clamp(min=0).minimum(
        _per_column([width - 1, height - 1, width - 1, height - 1], corners)
    )


def npu_bbox_coder_encode_yolo(bboxes: Tensor, gt_bboxes: Tensor, stride: Tensor) -> Tensor:
    """YOLO's form: where in its cell a box's middle is, and its size as logarithms."""
    _check("npu_bbox_coder_encode_yolo", bboxes, gt_bboxes)
    middle, extent = _centres(bboxes.float())
    wanted, size = _centres(gt_bboxes.float())
    cells = (wanted - middle) / stride.float().unsqueeze(1) + 0.5
    ratios = (size / extent).clamp(min=_LEAST).log()
    return torch.cat([cells.clamp(_LEAST, 1 - _LEAST), ratios], dim=1)
