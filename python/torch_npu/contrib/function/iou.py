# SPDX-License-Identifier: Apache-2.0
"""How much boxes overlap: intersection over union, and its differentiable relatives."""

import math

import torch
from torch import Tensor

__all__ = ["npu_ciou", "npu_diou", "npu_giou", "npu_iou", "npu_ptiou"]

_EPSILON = 1e-9


def _area(boxes: Tensor) -> Tensor:
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def _overlap(a: Tensor, b: Tensor) -> Tensor:
    low = torch.maximum(a[..., :2], b[..., :2])
    high = torch.minimum(a[..., 2:], b[..., 2:])
    extent = (high - low).clamp(min=0)
    return extent[..., 0] * extent[..., 1]


def _divide(part: Tensor, whole: Tensor) -> Tensor:
    return part / (whole + _EPSILON)


def npu_iou(
    boxes1: Tensor,
    boxes2: Tensor,
    mode: str = "ptiou",
    is_normalized: bool = False,
    normalized_scale: float = 100.0,
) -> Tensor:
    """[n, m] of n and m boxes (x0, y0, x1, y1): overlap over union; `mode` "iof": over boxes2."""
    if mode not in ("iou", "ptiou", "iof"):
        raise ValueError(f"npu_iou: expected mode 'iou', 'ptiou' or 'iof', but got {mode!r}")
    scale = normalized_scale if is_normalized else 1.0
    a, b = boxes1[:, None] * scale, boxes2[None] * scale
    overlap = _overlap(a, b)
    whole = _area(b).expand_as(overlap) if mode == "iof" else _area(a) + _area(b) - overlap
    return _divide(overlap, whole)


npu_ptiou = npu_iou


class _Pairs:
    """Boxes as corners, paired: [n] of n and n boxes, or [n, m] with `is_cross`."""

    def __init__(self, boxes1: Tensor, boxes2: Tensor, is_permuted: bool, is_cross: bool):
        if not is_permuted:  # [n, 4]; permuted ones are [4, n]
            boxes1, boxes2 = boxes1.t(), boxes2.t()
        if not is_cross and boxes1.shape != boxes2.shape:
            raise ValueError(
                f"expected as many boxes on both sides, but got {boxes1.shape[1]} and "
                f"{boxes2.shape[1]}; is_cross=True compares each with each"
            )
        a, b = boxes1.t(), boxes2.t()
        self.a, self.b = (a[:, None], b[None]) if is_cross else (a, b)

    def corners(self) -> "_Pairs":
        """The same boxes, given by middle and extent."""
        self.a, self.b = (
            torch.cat([x[..., :2] - x[..., 2:] / 2, x[..., :2] + x[..., 2:] / 2], dim=-1)
            for x in (self.a, self.b)
        )
        return self

    def ratio(self, mode: str) -> tuple[Tensor, Tensor]:
        """Overlap over union (or over the second box), and the union."""
        overlap = _overlap(self.a, self.b)
        union = _area(self.a) + _area(self.b) - overlap
        return _divide(overlap, _area(self.b) if mode == "iof" else union), union

    def hull(self) -> Tensor:
        """Extent of the smallest box around both."""
        low = torch.minimum(self.a[..., :2], self.b[..., :2])
        return torch.maximum(self.a[..., 2:], self.b[..., 2:]) - low

    def apart(self) -> Tensor:
        """Squared distance of the middles, as a share of the hull's squared diagonal."""
        a, b = ((x[..., :2] + x[..., 2:]) / 2 for x in (self.a, self.b))
        return _divide((a - b).square().sum(-1), self.hull().square().sum(-1))


def _pairs(boxes1, boxes2, is_permuted, is_cross, mode, trans) -> _Pairs:
    if mode not in ("iou", "iof"):
        raise ValueError(f"expected mode 'iou' or 'iof', but got {mode!r}")
    pairs = _Pairs(boxes1, boxes2, is_permuted, is_cross)
    return pairs.corners() if trans else pairs


def npu_giou(
    boxes1: Tensor, boxes2: Tensor, is_permuted: bool = True, trans: bool = True
) -> Tensor:
    """[n, 1]: less the share of the hull that neither box covers. `trans`: boxes are x, y, w, h;
    `is_permuted`: they are [n, 4]."""
    pairs = _pairs(boxes1, boxes2, not is_permuted, False, "iou", trans)
    ratio, union = pairs.ratio("iou")
    hull = pairs.hull().prod(-1)
    return (ratio - _divide(hull - union, hull)).unsqueeze(-1)


def npu_diou(
    boxes1: Tensor,
    boxes2: Tensor,
    trans: bool = True,
    is_cross: bool = False,
    mode: int = 0,
) -> Tensor:
    """[1, n], or [n, m] with `is_cross`, of boxes [4, n]: less how far the middles are apart."""
    name = "iof" if mode else "iou"
    pairs = _pairs(boxes1, boxes2, True, is_cross, name, trans)
    result = pairs.ratio(name)[0] - pairs.apart()
    return result if is_cross else result.unsqueeze(0)


def npu_ciou(
    boxes1: Tensor,
    boxes2: Tensor,
    trans: bool = True,
    is_cross: bool = False,
    mode: int = 0,
) -> Tensor:
    """npu_diou, less how different the shapes are."""
    name = "iof" if mode else "iou"
    pairs = _pairs(boxes1, boxes2, True, is_cross, name, trans)
    ratio = pairs.ratio(name)[0]
    angles = []
    for x in (pairs.a, pairs.b):
        extent = x[..., 2:] - x[..., :2]
        angles.append(torch.atan(_divide(extent[..., 0], extent[..., 1])))
    shape = 4 / math.pi**2 * (angles[0] - angles[1]).square()
    with torch.no_grad():
        weight = shape / (1 - ratio + shape + _EPSILON)
    result = ratio - pairs.apart() - weight * shape
    return result if is_cross else result.unsqueeze(0)
