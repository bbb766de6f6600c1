# SPDX-License-Identifier: Apache-2.0
"""Rotated boxes, assignment of boxes, crops: plain geometry in Python's floats."""

import math

import torch
from table import add, ints, rand

ONE = (torch.float32,)


# ---- rotated boxes


def corners(box, trans, sign=1.0):
    """Counter-clockwise corners and the area."""
    a, b, c, d, degrees = box
    cx, cy, w, h = ((a + c) / 2, (b + d) / 2, c - a, d - b) if trans else (a, b, c, d)
    cos, sin = math.cos(math.radians(sign * degrees)), math.sin(math.radians(sign * degrees))
    unit = ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
    return [
        (cx + px * w * cos - py * h * sin, cy + px * w * sin + py * h * cos) for px, py in unit
    ], w * h


def clipped(polygon, a, b):
    """The part of a polygon on the left of the line from a to b."""

    def side(p):
        return (b[0] - a[0]) * (p[1] - a[1]) - (b[1] - a[1]) * (p[0] - a[0])

    out = []
    for i, p in enumerate(polygon):
        before = polygon[i - 1]
        s, t = side(before), side(p)
        if (s >= 0) != (t >= 0):
            r = s / (s - t)
            out.append((before[0] + r * (p[0] - before[0]), before[1] + r * (p[1] - before[1])))
        if t >= 0:
            out.append(p)
    return out


def shared(first, second):
    """The area that two convex polygons share."""
    if len({*first}) < 4 or len({*second}) < 4:
        return 0.0
    polygon = first
    for i in range(4):
        polygon = clipped(polygon, second[i], second[(i + 1) % 4])
        if not polygon:
            return 0.0
    twice = sum(polygon[i - 1][0] * p[1] - p[0] * polygon[i - 1][1] for i, p in enumerate(polygon))
    return abs(twice) / 2


def pairs(x, y, trans, is_cross, ratio):
    batches = []
    for first, second in zip(x.tolist(), y.tolist(), strict=True):
        rows = []
        for i, one in enumerate(first):
            others = second if is_cross else [second[i]]
            (p, area), row = corners(one, trans), []
            for other in others:
                r, other_area = corners(other, trans)
                row.append(ratio(shared(p, r), area, other_area))
            rows.append(row)
        batches.append(rows)
    columns = y.shape[1] if is_cross else 1
    return torch.tensor(batches, dtype=torch.float64).reshape(x.shape[0], x.shape[1], columns)


def overlaps(x, y, trans=False):
    return pairs(x, y, trans, True, lambda both, a, b: both)


def iou(x, y, trans=False, mode=0, is_cross=True, v_threshold=0.0, e_threshold=0.0):
    def ratio(both, a, b):
        below = a if mode == 1 else a + b - both
        return both / below if below > 0 else 0.0

    return pairs(x, y, trans, is_cross, ratio)


def boxes(batch, count, trans=False):
    centre, size = rand(batch, count, 2, low=0, high=5), rand(batch, count, 2, low=1, high=4)
    angle = ints(-90, 91, batch, count, 1).double()
    return torch.cat(((centre, centre + size) if trans else (centre, size)) + (angle,), -1)


KNOWN = torch.tensor(
    [[[2, 2, 2, 2, 0], [2, 2, 4, 1, 0], [2, 2, 2, 2, 45], [9, 9, 1, 1, 30], [3, 2, 2, 2, 0],
      [2, 2, 1, 1, 0], [4, 2, 2, 2, 0], [2, 2, 2, 2, 90]]], dtype=torch.float64,
)  # fmt: skip
# Two squares turned by 45 degrees against each other share a regular octagon.
assert math.isclose(
    shared(corners([2, 2, 2, 2, 0], False)[0], corners([2, 2, 2, 2, 45], False)[0]),
    8 * (math.sqrt(2) - 1),
)
for label, first, second, options in (
    ("known", KNOWN, KNOWN, {}),
    ("random", boxes(2, 5), boxes(2, 4), {}),
    ("corners", boxes(2, 3, True), boxes(2, 6, True), {"trans": True}),
    ("one", boxes(1, 1), boxes(1, 1), {}),
    ("none", boxes(2, 0), boxes(2, 3), {}),
    ("strided", boxes(3, 8)[:, ::2], boxes(3, 6)[:, ::3], {}),
):
    add("npu_rotated_overlaps", overlaps, first, second, label=label, **options)
    add("npu_rotated_iou", iou, first, second, label=label, **options)
add("npu_rotated_iou", iou, KNOWN, KNOWN, label="known-first-area", mode=1)
add("npu_rotated_iou", iou, boxes(2, 5), boxes(2, 4), label="first-area", mode=1)
add("npu_rotated_iou", iou, boxes(2, 5), boxes(2, 5), label="pairs", is_cross=False)
add(
    "npu_rotated_iou",
    iou,
    boxes(2, 5, True),
    boxes(2, 5, True),
    True,
    1,
    False,
    label="pairs-corners",
)


def encode(anchors, targets, weight):
    def centre(x):
        return (
            (x[:, 0] + x[:, 2]) / 2,
            (x[:, 1] + x[:, 3]) / 2,
            x[:, 2] - x[:, 0],
            x[:, 3] - x[:, 1],
        )

    (xa, ya, wa, ha), (xg, yg, wg, hg) = centre(anchors), centre(targets)
    angle = torch.tan(torch.deg2rad(targets[:, 4])) - torch.tan(torch.deg2rad(anchors[:, 4]))
    out = ((xg - xa) / wa, (yg - ya) / ha, torch.log(wg / wa), torch.log(hg / ha), angle)
    return torch.stack(out, 1) * weight[:, None]


def decode(anchors, deltas, weight):
    d = deltas / weight[:, None]
    wa, ha = anchors[:, 2] - anchors[:, 0], anchors[:, 3] - anchors[:, 1]
    x = (anchors[:, 0] + anchors[:, 2]) / 2 + d[:, 0] * wa
    y = (anchors[:, 1] + anchors[:, 3]) / 2 + d[:, 1] * ha
    w, h = torch.exp(d[:, 2]) * wa, torch.exp(d[:, 3]) * ha
    angle = torch.rad2deg(torch.atan(torch.tan(torch.deg2rad(anchors[:, 4])) + d[:, 4]))
    return torch.stack((x - w / 2, y - h / 2, x + w / 2, y + h / 2, angle), 1)


def upright(batch, count):
    x = boxes(batch, count, True).transpose(1, 2).clone()
    x[:, 4] = x[:, 4] / 2
    return x


ONES, WEIGHTS = torch.ones(5).double(), torch.tensor([1.0, 2, 0.5, 4, 8]).double()
for label, count, weight in (("ones", 4, ONES), ("weights", 3, WEIGHTS), ("one", 1, ONES),
                             ("none", 0, ONES)):  # fmt: skip
    add("npu_rotated_box_encode", encode, upright(2, count), upright(2, count), weight, label=label)
    add("npu_rotated_box_decode", decode, upright(2, count), rand(2, 5, count, low=-1, high=1),
        weight, label=label)  # fmt: skip


def nms(dets, scores, iou_threshold, scores_threshold=0.0, max_output_size=-1, mode=0):
    shapes = [corners(box, mode == 1, -1.0 if mode == 1 else 1.0) for box in dets.tolist()]
    values, kept = scores.tolist(), []
    for i in sorted(range(len(values)), key=lambda i: (-values[i], i)):
        if values[i] <= scores_threshold:
            continue
        p, area = shapes[i]

        def over(j, p=p, area=area):
            r, other = shapes[j]
            both = shared(p, r)
            return both / (area + other - both)

        if all(over(j) <= iou_threshold for j in kept):
            kept.append(i)
    if max_output_size >= 0:
        kept = kept[:max_output_size]
    return torch.tensor(kept, dtype=torch.int32), torch.tensor([len(kept)], dtype=torch.int32)


for label, dets, options in (
    ("random", boxes(1, 12)[0], {}),
    ("corners", boxes(1, 12, True)[0], {"mode": 1}),
    ("score-threshold", boxes(1, 12)[0], {"scores_threshold": 0.5}),
    ("three", boxes(1, 12)[0], {"max_output_size": 3}),
    ("one", boxes(1, 1)[0], {}),
    ("none", boxes(1, 0)[0], {}),
):
    order = torch.randperm(12, generator=torch.Generator().manual_seed(3))[: len(dets)]
    add("npu_nms_rotated", nms, dets, (order.double() + 1) / 16, 0.3, label=label, fake=False,
        **options)  # fmt: skip
add("npu_nms_rotated", nms, KNOWN[0], torch.full((8,), 0.5).double(), 0.5, label="equal-scores",
    fake=False, dtypes=ONE)  # fmt: skip


# ---- assignment


def yolo(anchors, targets, stride, performance_mode=False):
    rows = []
    for a, g, s in zip(anchors.tolist(), targets.tolist(), stride.tolist(), strict=True):
        out = []
        for axis in (0, 1):
            apart = (g[axis] + g[axis + 2]) / 2 - (a[axis] + a[axis + 2]) / 2
            out.append(min(max(apart / s + 0.5, 1e-6), 1 - 1e-6))
        for axis in (0, 1):
            out.append(math.log(max((g[axis + 2] - g[axis]) / (a[axis + 2] - a[axis]), 1e-6)))
        rows.append(out)
    return torch.tensor(rows, dtype=torch.float64).reshape(-1, 4)


def corner_boxes(count):
    low = rand(count, 2, low=0, high=8)
    return torch.cat((low, low + rand(count, 2, low=1, high=6)), 1)


for label, count, options in (
    ("some", 7, {}), ("one", 1, {}), ("performance", 5, {"performance_mode": True}),
):  # fmt: skip
    add("npu_yolo_boxes_encode", yolo, corner_boxes(count), corner_boxes(count),
        ints(4, 33, count, dtype=torch.int32), label=label, **options)  # fmt: skip
# An empty target box: the ratio of widths is cut at 1e-6.
add("npu_yolo_boxes_encode", yolo, corner_boxes(1), torch.tensor([[1.0, 1, 1, 1]]).double(),
    torch.tensor([8], dtype=torch.int32), label="empty-box")  # fmt: skip


def grid_assign(
    assigned, overlaps, flags, max_overlaps, argmax, gt_max, gt_argmax, num_gts, pos_iou_thr,
    min_pos_iou, gt_max_assign_all,
):  # fmt: skip
    out = assigned.clone()
    for box in range(len(out)):
        if flags[box] and max_overlaps[box] > pos_iou_thr:
            out[box] = argmax[box] + 1
    for gt in range(num_gts):
        if not gt_max[gt] > min_pos_iou:
            continue
        if gt_max_assign_all:
            for box in range(len(out)):
                if flags[box] and overlaps[gt, box] == gt_max[gt]:
                    out[box] = gt + 1
        elif flags[gt_argmax[gt]]:
            out[gt_argmax[gt]] = gt + 1
    return out


for label, gts, count in (("some", 4, 12), ("one", 1, 1), ("ties", 3, 20)):
    table = rand(gts, count, low=0, high=1)
    if label == "ties":
        table = torch.round(table * 4) / 4
    flags = ints(0, 2, count, dtype=torch.uint8)
    best, per_gt = table.max(0), table.max(1)
    for every in (True, False):
        add("npu_grid_assign_positive", grid_assign, torch.where(rand(count) > 0, 0.0, -1.0).double(),
            table, flags, best.values, best.indices.int(), per_gt.values, per_gt.indices.int(), gts,
            0.5, 0.25, every, label=f"{label}-{'all' if every else 'first'}")  # fmt: skip


# ---- crops


def sample(plane, y, x, method, outside):
    height, width = plane.shape
    if not (0 <= y <= height - 1 and 0 <= x <= width - 1):
        return outside
    if method == "nearest":
        return float(plane[math.floor(y + 0.5), math.floor(x + 0.5)])
    total = 0.0
    for row, wy in ((math.floor(y), 1 - (y - math.floor(y))), (math.ceil(y), y - math.floor(y))):
        for column, wx in (
            (math.floor(x), 1 - (x - math.floor(x))),
            (math.ceil(x), x - math.floor(x)),
        ):
            total += wy * wx * float(plane[row, column])
    return total


def plain_places(low, high, size, count):
    if count == 1:
        return [0.5 * (low + high) * (size - 1)]
    return [low * (size - 1) + p * (high - low) * (size - 1) / (count - 1) for p in range(count)]


def v2_places(low, high, size, count):
    """(lower, upper, ratio) of each output place."""
    start = math.floor(low * size)
    extent = max(math.floor(high * size) - start + 1, 1)
    out = []
    for p in range(count):
        r = (p + 0.5) * extent / count - 0.5
        lower, upper = (min(max(f(r), 0), extent - 1) for f in (math.floor, math.ceil))
        at = [min(max(place + start, 0), size - 1) for place in (lower, upper)]
        out.append((*at, r - lower))
    return out


def crop(x, boxes, box_index, crop_size, extrapolation_value=0.0, method="bilinear"):
    count, (rows, columns) = len(box_index), crop_size
    out = torch.zeros(count, x.shape[1], rows, columns, dtype=torch.float64)
    for n, image in enumerate(box_index):
        y1, x1, y2, x2 = boxes[4 * n : 4 * n + 4]
        for c in range(x.shape[1]):
            plane = x[image, c]
            if method == "bilinear_v2":
                for i, (ya, yb, ry) in enumerate(v2_places(y1, y2, plane.shape[0], rows)):
                    for j, (xa, xb, rx) in enumerate(v2_places(x1, x2, plane.shape[1], columns)):
                        top = plane[ya, xa] * (1 - rx) + plane[ya, xb] * rx
                        low = plane[yb, xa] * (1 - rx) + plane[yb, xb] * rx
                        out[n, c, i, j] = top * (1 - ry) + low * ry
                continue
            for i, y in enumerate(plain_places(y1, y2, plane.shape[0], rows)):
                for j, at in enumerate(plain_places(x1, x2, plane.shape[1], columns)):
                    out[n, c, i, j] = sample(plane, y, at, method, extrapolation_value)
    return out


INSIDE = [0.125, 0.25, 0.875, 0.75, 0.0, 0.0, 1.0, 1.0, 0.5, 0.75, 0.25, 0.125]
BEYOND = [-0.5, 0.25, 0.5, 1.5]
for method in ("bilinear", "nearest", "bilinear_v2"):
    for label, places, index, size in (
        ("inside", INSIDE, [0, 1, 1], [4, 3]), ("one", INSIDE[:4], [1], [1, 1]),
        ("larger", INSIDE[4:8], [0], [9, 9]),
    ):  # fmt: skip
        if method == "bilinear_v2" and label == "inside":
            places = [0.125, 0.25, 0.875, 0.75, 0.0, 0.0, 0.75, 0.875, 0.25, 0.125, 0.5, 0.75]
        add("crop_and_resize", crop, rand(2, 3, 5, 9), places, index, size, method=method,
            label=f"{method}-{label}")  # fmt: skip
for method in ("bilinear", "nearest"):
    add("crop_and_resize", crop, rand(1, 2, 5, 7), BEYOND, [0], [5, 4], 0.5, method,
        label=f"{method}-beyond")  # fmt: skip
add("crop_and_resize", crop, rand(2, 9, 5, 3).permute(0, 3, 2, 1), INSIDE[:4], [1], [3, 3],
    label="strided")  # fmt: skip
add("crop_and_resize", crop, rand(1, 2, 4, 4), [], [], [3, 3], label="none")
