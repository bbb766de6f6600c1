# SPDX-License-Identifier: Apache-2.0
"""Rotated boxes: overlaps, coding and suppression. Angles are degrees."""

import math

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import require, wide
from torch_npu.ops.detection import _greedy, _ratio


def _sides(boxes, corners: bool):
    """Centre x, y, width, height and angle in radians of boxes (..., 5)."""
    a, b, c, d, angle = wide(boxes).unbind(-1)
    if corners:
        a, b, c, d = (a + c) / 2, (b + d) / 2, c - a, d - b
    return a, b, c.clamp(min=0), d.clamp(min=0), angle * (math.pi / 180)


def _polygon(sides, x0, y0):
    """x and y of the corners (4, ...) in order, seen from the point (x0, y0)."""
    x, y, w, h, angle = sides
    px, py = torch.stack((-w, w, w, -w)) / 2, torch.stack((-h, -h, h, h)) / 2
    cos, sin = torch.cos(angle), torch.sin(angle)
    return px * cos - py * sin + (x - x0), px * sin + py * cos + (y - y0)


def _cut(points, sides, first, second):
    """Where the edges between two corners, given by their numbers (1, ...), cross the line."""
    a, b = sides.gather(0, first), sides.gather(0, second)
    part = a / torch.where(a == b, torch.ones_like(a), a - b)
    return [p.gather(0, first) * (1 - part) + p.gather(0, second) * part for p in points]


def _clipped(polygon, start, end):
    """The part of a convex polygon of n corners left of a line, as n + 1 corners; some may repeat.

    The corners are counted from the one deepest inside. So rounding near the line, which may put one
    of several corners there on the wrong side, cannot hide those that are far from it.
    """
    x, y = polygon
    n = x.size(0)
    sides = (end[0] - start[0]) * (y - start[1]) - (end[1] - start[1]) * (x - start[0])
    shape = [-1] + [1] * (x.dim() - 1)
    slot = torch.arange(n + 1, device=x.device).view(shape)
    turn = (sides.argmax(0, keepdim=True) + slot[:n]) % n
    sides, points = sides.gather(0, turn), [p.gather(0, turn) for p in polygon]
    inside = (sides >= 0).to(torch.int64)
    ahead = inside.cumprod(0).sum(0, keepdim=True)
    behind = inside.flip(0).cumprod(0).sum(0, keepdim=True)
    leaves = _cut(points, sides, (ahead - 1).clamp(min=0), ahead % n)
    enters = _cut(points, sides, (n - behind - 1).clamp(min=0), (n - behind) % n)
    kept = torch.where(slot < ahead, slot, slot - 1).clamp(0, n - 1)
    between = (slot > ahead) & (slot <= n - behind)
    leaving = (slot == ahead) & (ahead < n)
    some = (ahead > 0).to(x.dtype)
    return [
        torch.where(between, q, torch.where(leaving, o, p.gather(0, kept))) * some
        for p, o, q in zip(points, leaves, enters)
    ]


def _intersection(a, b):
    """Area that boxes share; a and b are the sides of boxes of one shape."""
    polygon, other = _polygon(a, a[0], a[1]), _polygon(b, a[0], a[1])
    for edge in range(4):
        start, end = ([c[k % 4] for c in other] for k in (edge, edge + 1))
        polygon = _clipped(polygon, start, end)
    x, y = polygon
    return (x * y.roll(-1, 0) - y * x.roll(-1, 0)).sum(0).clamp(min=0) / 2


def _intersections(a, b):
    """The same of sides (B, N, K), in parts: the corners of all pairs at once would need much memory."""
    shape = torch.broadcast_shapes(a[0].shape, b[0].shape)
    a, b = ([s.expand(shape) for s in sides] for sides in (a, b))
    rows = max(1, 2**17 // max(1, shape[0] * shape[2]))
    parts = [
        _intersection([s[:, at : at + rows] for s in a], [s[:, at : at + rows] for s in b])
        for at in range(0, shape[1], rows)
    ]
    return torch.cat(parts, 1) if parts else a[0].new_zeros(shape)


def _pairs(name, boxes, query, trans: bool, is_cross: bool = True):
    """Sides of boxes (B, N, 1) and of query boxes (B, 1, K), or (B, N, 1) of each pair."""
    for argument, x in (("self", boxes), ("query_boxes", query)):
        require(
            x.dim() == 3 and x.size(2) == 5 and x.size(0) == boxes.size(0),
            f"{name}: {argument} has shape {list(x.shape)}; allowed: ({boxes.size(0)}, n, 5).",
        )
    require(
        is_cross or boxes.size(1) == query.size(1),
        f"{name}: {boxes.size(1)} boxes and {query.size(1)} query_boxes; with is_cross False give as many.",
    )
    a = [s[:, :, None] for s in _sides(boxes, trans)]
    return a, [s[:, None, :] if is_cross else s[:, :, None] for s in _sides(query, trans)]


@implements("npu_rotated_overlaps")
def npu_rotated_overlaps(input, query_boxes, trans=False):
    a, b = _pairs("npu_rotated_overlaps", input, query_boxes, trans)
    return _intersections(a, b).to(input.dtype)


def _rotated_iou(a, b, mode=0):
    inner = _intersections(a, b)
    first = (a[2] * a[3]).expand_as(inner)
    return _ratio(inner, first if mode == 1 else first + b[2] * b[3] - inner)


@implements("npu_rotated_iou")
def npu_rotated_iou(
    input, query_boxes, trans=False, mode=0, is_cross=True, v_threshold=0.0, e_threshold=0.0
):
    name = "npu_rotated_iou"
    require(
        mode in (0, 1),
        f"{name}: mode is {mode}; allowed: 0 (union), 1 (area of the boxes).",
        "VALUE",
    )
    a, b = _pairs(name, input, query_boxes, trans, is_cross)
    return _rotated_iou(a, b, mode).to(input.dtype)


def _near_iou(sides):
    """(n, n) of boxes with each other; only pairs whose surrounding circles meet are computed."""
    x, y, w, h, _ = sides
    reach = torch.sqrt(w * w + h * h) / 2
    apart = (x[:, None] - x) ** 2 + (y[:, None] - y) ** 2
    i, j = torch.nonzero(torch.triu(apart <= (reach[:, None] + reach) ** 2, 1)).unbind(1)
    a, b = ([s[at][None, :, None] for s in sides] for at in (i, j))
    iou = x.new_zeros(x.numel(), x.numel())
    iou[i, j] = _rotated_iou(a, b).flatten()
    return iou + iou.t()


def _nms_rotated_meta(input, scores, iou_threshold, scores_threshold=0, max_output_size=-1, mode=0):
    require(
        False,
        "npu_nms_rotated: how many boxes it keeps depends on values, which are not known while tracing.",
    )


@implements("npu_nms_rotated", meta=_nms_rotated_meta)
def npu_nms_rotated(input, scores, iou_threshold, scores_threshold=0, max_output_size=-1, mode=0):
    """(numbers of the kept boxes, how many), best first."""
    name = "npu_nms_rotated"
    require(
        input.dim() == 2 and input.size(1) == 5 and list(scores.shape) == [input.size(0)],
        f"{name}: the input has shape {list(input.shape)} and scores {list(scores.shape)}; allowed: "
        "(n, 5) and (n).",
    )
    require(
        mode in (0, 1),
        f"{name}: mode is {mode}; allowed: 0 (x, y, w, h, angle), 1 (x1, y1, x2, y2, angle).",
        "VALUE",
    )
    good = torch.nonzero(scores > scores_threshold).flatten()
    x, y, w, h, angle = _sides(input.index_select(0, good), mode == 1)
    iou = _near_iou((x, y, w, h, -angle if mode == 1 else angle))
    kept = _greedy(iou, scores.index_select(0, good), iou_threshold)
    kept = kept if max_output_size < 0 else kept[:max_output_size]
    numbers = good.index_select(0, torch.tensor(kept, dtype=torch.int64, device=good.device))
    count = torch.tensor([len(kept)], dtype=torch.int32, device=input.device)
    return numbers.to(torch.int32), count


def _coded(name, boxes, other, what: str, weight):
    """Centre, size and tangent of boxes (B, 5, N), and a weight for each row."""
    require(
        boxes.dim() == 3 and boxes.size(1) == 5 and other.shape == boxes.shape,
        f"{name}: the input has shape {list(boxes.shape)} and {what} {list(other.shape)}; both must "
        "be (B, 5, N).",
    )
    require(weight.numel() == 5, f"{name}: weight has {weight.numel()} numbers; allowed: 5.")
    return _centred(boxes), wide(weight).reshape(5, 1)


def _centred(boxes):
    x1, y1, x2, y2, angle = wide(boxes).unbind(1)
    return (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, torch.tan(angle * (math.pi / 180))


@implements("npu_rotated_box_encode")
def npu_rotated_box_encode(input, gt_bboxes, weight):
    (x, y, w, h, tangent), factors = _coded(
        "npu_rotated_box_encode", input, gt_bboxes, "gt_bboxes", weight
    )
    gx, gy, gw, gh, goal = _centred(gt_bboxes)
    rows = (gx - x) / w, (gy - y) / h, torch.log(gw / w), torch.log(gh / h), goal - tangent
    return (torch.stack(rows, 1) * factors).to(input.dtype)


@implements("npu_rotated_box_decode")
def npu_rotated_box_decode(input, deltas, weight):
    (x, y, w, h, tangent), factors = _coded(
        "npu_rotated_box_decode", input, deltas, "deltas", weight
    )
    dx, dy, dw, dh, turn = (wide(deltas) / factors).unbind(1)
    x, y, w, h = x + dx * w, y + dy * h, w * torch.exp(dw), h * torch.exp(dh)
    angle = torch.atan(tangent + turn) * (180 / math.pi)
    rows = x - w / 2, y - h / 2, x + w / 2, y + h / 2, angle
    return torch.stack(rows, 1).to(input.dtype)
