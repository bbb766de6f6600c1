# SPDX-License-Identifier: Apache-2.0
"""Boxes: overlaps, coding, non-maximum suppression, pooling of regions."""

import math

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import require, wide, within


def _corners(x, centre: bool):
    """x1, y1, x2, y2 of boxes (4, n), each (n)."""
    a, b, c, d = wide(x).unbind(0)
    return (a - c / 2, b - d / 2, a + c / 2, b + d / 2) if centre else (a, b, c, d)


def _overlap(a, b):
    """Intersection of boxes given as tuples of broadcastable coordinates."""
    w = torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])
    h = torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])
    return w.clamp(min=0) * h.clamp(min=0)


def _area(a):
    return (a[2] - a[0]) * (a[3] - a[1])


def _ratio(part, whole):
    return torch.where(
        whole > 0,
        part / torch.where(whole > 0, whole, torch.ones_like(whole)),
        torch.zeros_like(part),
    )


@implements("npu_iou", "npu_ptiou")
def npu_iou(bboxes, gtboxes, mode=0):
    """(M, N): a row for each of gtboxes (M, 4), a column for each of bboxes (N, 4)."""
    require(
        mode in (0, 1),
        f"npu_iou: mode is {mode}; allowed: 0 (union), 1 (area of gtboxes).",
        "VALUE",
    )
    for what, x in (("bboxes", bboxes), ("gtboxes", gtboxes)):
        require(
            x.dim() == 2 and x.size(1) == 4,
            f"npu_iou: {what} has shape {list(x.shape)}; allowed: (n, 4).",
        )
    a = [c[None, :] for c in _corners(bboxes.t(), False)]
    b = [c[:, None] for c in _corners(gtboxes.t(), False)]
    inner = _overlap(a, b)
    whole = _area(b) if mode == 1 else _area(a) + _area(b) - inner
    return _ratio(inner, whole.expand_as(inner)).to(bboxes.dtype)


class _Pair:
    """Boxes and ground truth (4, n), (4, m), element by element or every pair as (m, n)."""

    def __init__(self, name, boxes, truth, trans, is_cross, mode):
        require(
            mode in (0, 1),
            f"{name}: mode is {mode}; allowed: 0 (union), 1 (area of the boxes).",
            "VALUE",
        )
        for what, x in (("self", boxes), ("gtboxes", truth)):
            require(
                x.dim() == 2 and x.size(0) == 4,
                f"{name}: {what} has shape {list(x.shape)}; allowed: (4, n).",
            )
        require(
            is_cross or boxes.size(1) == truth.size(1),
            f"{name}: {boxes.size(1)} boxes and {truth.size(1)} gtboxes; with is_cross False give as many.",
        )
        self.a, self.b = _corners(boxes, trans), _corners(truth, trans)
        if is_cross:
            self.a, self.b = [c[None, :] for c in self.a], [c[:, None] for c in self.b]
        inner = _overlap(self.a, self.b)
        self.union = (_area(self.a) + _area(self.b)).expand_as(inner) - inner
        whole = _area(self.a).expand_as(inner) if mode == 1 else self.union
        self.iou = _ratio(inner, whole)
        pick = (torch.minimum, torch.minimum, torch.maximum, torch.maximum)
        self.hull = [f(p, q) for f, p, q in zip(pick, self.a, self.b)]

    def distance(self):
        """Squared distance of centres over the squared diagonal of the hull."""
        dx = (self.a[0] + self.a[2] - self.b[0] - self.b[2]) / 2
        dy = (self.a[1] + self.a[3] - self.b[1] - self.b[3]) / 2
        diagonal = (self.hull[2] - self.hull[0]) ** 2 + (self.hull[3] - self.hull[1]) ** 2
        return _ratio(dx * dx + dy * dy, diagonal)


@implements("npu_giou")
def npu_giou(input, gtboxes, trans=False, is_cross=False, mode=0):
    """(n, 1), or (n, m) of every pair."""
    pair = _Pair("npu_giou", input, gtboxes, trans, is_cross, mode)
    hull = _area(pair.hull)
    giou = (pair.iou - _ratio(hull - pair.union, hull)).to(input.dtype)
    return giou.t() if is_cross else giou.unsqueeze(1)


@implements("npu_diou")
def npu_diou(input, gtboxes, trans=False, is_cross=False, mode=0):
    """(1, n), or (m, n) of every pair."""
    pair = _Pair("npu_diou", input, gtboxes, trans, is_cross, mode)
    diou = (pair.iou - pair.distance()).to(input.dtype)
    return diou if is_cross else diou.unsqueeze(0)


def _ciou(name, boxes, truth, trans, is_cross, mode):
    pair = _Pair(name, boxes, truth, trans, is_cross, mode)
    slope = [torch.atan2(c[2] - c[0], c[3] - c[1]) for c in (pair.a, pair.b)]
    apart = slope[1] - slope[0]
    v = 4 / math.pi**2 * apart * apart
    weight = _ratio(v, 1 - pair.iou + v).detach()
    ciou = pair.iou - pair.distance() - weight * v
    return [(x if is_cross else x.unsqueeze(0)).to(boxes.dtype) for x in (ciou, apart)]


@implements("npu_ciou")
def npu_ciou(input, gtboxes, trans=False, is_cross=True, mode=0, atan_sub_flag=False):
    return _ciou("npu_ciou", input, gtboxes, trans, is_cross, mode)[0]


@implements("_npu_ciou")
def _npu_ciou(input, gtboxes, trans=False, is_cross=True, mode=0, atan_sub_flag=False):
    ciou, apart = _ciou("_npu_ciou", input, gtboxes, trans, is_cross, mode)
    return ciou, apart.detach() if atan_sub_flag else apart.new_empty(0)


def _centres(x):
    """Centre and size with both ends counted, as mmdetection 1.x."""
    x1, y1, x2, y2 = wide(x).unbind(-1)
    return (x1 + x2) / 2, (y1 + y2) / 2, x2 - x1 + 1, y2 - y1 + 1


@implements("npu_bounding_box_encode")
def npu_bounding_box_encode(
    anchor_box, ground_truth_box, means0, means1, means2, means3, stds0, stds1, stds2, stds3
):
    px, py, pw, ph = _centres(anchor_box)
    gx, gy, gw, gh = _centres(ground_truth_box)
    deltas = torch.stack(
        ((gx - px) / pw, (gy - py) / ph, torch.log(gw / pw), torch.log(gh / ph)), -1
    )
    means = deltas.new_tensor([means0, means1, means2, means3])
    return ((deltas - means) / deltas.new_tensor([stds0, stds1, stds2, stds3])).to(anchor_box.dtype)


@implements("npu_bounding_box_decode")
def npu_bounding_box_decode(
    rois,
    deltas,
    means0,
    means1,
    means2,
    means3,
    stds0,
    stds1,
    stds2,
    stds3,
    max_shape,
    wh_ratio_clip,
):
    require(
        wh_ratio_clip > 0,
        f"npu_bounding_box_decode: wh_ratio_clip is {wh_ratio_clip}; it must be positive.",
        "VALUE",
    )
    px, py, pw, ph = _centres(rois)
    d = wide(deltas) * deltas.new_tensor([stds0, stds1, stds2, stds3]) + deltas.new_tensor(
        [means0, means1, means2, means3]
    )
    dx, dy, dw, dh = d.unbind(-1)
    limit = abs(math.log(wh_ratio_clip))
    gw, gh = pw * torch.exp(dw.clamp(-limit, limit)), ph * torch.exp(dh.clamp(-limit, limit))
    gx, gy = px + pw * dx, py + ph * dy
    box = [gx - (gw - 1) / 2, gy - (gh - 1) / 2, gx + (gw - 1) / 2, gy + (gh - 1) / 2]
    if len(max_shape) == 2:
        high, wide_ = max_shape
        ends = (wide_ - 1, high - 1, wide_ - 1, high - 1)
        box = [c.clamp(0, end) for c, end in zip(box, ends)]
    return torch.stack(box, -1).to(rois.dtype)


def _suppress(boxes, scores, threshold: float) -> list[int]:
    """Numbers of the boxes kept, best first; of equal scores the lower number first."""
    corners = [c[None, :] for c in _corners(boxes.t(), False)]
    rows = [c.squeeze(0)[:, None] for c in corners]
    inner = _overlap(corners, rows)
    iou = _ratio(inner, (_area(corners) + _area(rows)) - inner)
    return _greedy(iou, scores, threshold)


def _greedy(iou, scores, threshold: float) -> list[int]:
    """Best first, numbers of those that overlap none kept before by more than the threshold."""
    order, rows = torch.sort(scores, descending=True, stable=True)[1].tolist(), iou.tolist()
    kept: list[int] = []
    for i in order:
        if all(rows[i][j] <= threshold for j in kept):
            kept.append(i)
    return kept


def _nms_v4_meta(input, scores, max_output_size, *args, **kwargs):
    return input.new_empty(int(max_output_size), dtype=torch.int32), input.new_empty(
        (), dtype=torch.int32
    )


@implements("npu_nms_v4", meta=_nms_v4_meta)
def npu_nms_v4(
    input, scores, max_output_size, iou_threshold, scores_threshold, pad_to_max_output_size=False
):
    limit = int(max_output_size)
    require(
        limit >= 0, f"npu_nms_v4: max_output_size is {limit}; it must not be negative.", "VALUE"
    )
    good = scores > scores_threshold.to(scores.dtype)
    numbers = torch.nonzero(good).flatten().tolist()
    kept = [numbers[i] for i in _suppress(input[good], scores[good], float(iou_threshold))][:limit]
    padded = kept + [0] * (limit - len(kept))
    make = {"dtype": torch.int32, "device": input.device}
    return torch.tensor(padded, **make), torch.tensor(len(kept), **make)


def _nms_mask_meta(input, iou_threshold):
    n = input.size(0)
    return (
        torch.empty_like(input),
        input.new_empty(n, dtype=torch.int32),
        input.new_empty(n, dtype=torch.uint8),
    )


@implements("npu_nms_with_mask", meta=_nms_mask_meta)
def npu_nms_with_mask(input, iou_threshold):
    require(
        input.dim() == 2 and input.size(1) == 5,
        f"npu_nms_with_mask: the input has shape {list(input.shape)}; allowed: (n, 5), four corners and a score.",
    )
    order = torch.sort(input[:, 4], descending=True, stable=True)[1]
    boxes = input.index_select(0, order)
    kept = _suppress(boxes[:, :4], boxes[:, 4], float(iou_threshold))
    mask = torch.zeros(input.size(0), dtype=torch.uint8, device=input.device)
    mask[torch.tensor(kept, dtype=torch.int64, device=input.device)] = 1
    return boxes, torch.arange(input.size(0), dtype=torch.int32, device=input.device), mask


def _sample(x, ys, xs):
    """Bilinear values (R, C, …) of x[batch] (R, C, H, W) at (R, …); zero outside by more than one."""
    high, across = x.size(-2), x.size(-1)
    outside = (ys < -1) | (ys > high) | (xs < -1) | (xs > across)
    ys, xs = ys.clamp(min=0), xs.clamp(min=0)
    y0, x0 = ys.floor().clamp(max=high - 1), xs.floor().clamp(max=across - 1)
    ys, xs = (
        torch.minimum(ys, ys.new_tensor(high - 1)),
        torch.minimum(xs, xs.new_tensor(across - 1)),
    )
    y1, x1 = (y0 + 1).clamp(max=high - 1), (x0 + 1).clamp(max=across - 1)
    ly, lx = ys - y0, xs - x0
    flat = x.flatten(2)

    def at(y, c):
        index = (y * across + c).to(torch.int64).flatten(1)
        return flat.gather(2, index[:, None].expand(-1, x.size(1), -1)).unflatten(2, y.shape[1:])

    parts = [
        ((1 - ly) * (1 - lx), at(y0, x0)),
        ((1 - ly) * lx, at(y0, x1)),
        (ly * (1 - lx), at(y1, x0)),
        (ly * lx, at(y1, x1)),
    ]
    value = sum(w[:, None] * v for w, v in parts)
    return value.masked_fill(outside[:, None], 0.0)


def _pooled(maps, start, size, bins, counts):
    """Means (R, C, *bins) of `counts` samples a bin, down and across, in regions of maps (R, C, H, W)."""

    def places(i):
        steps = (torch.arange(bins[i] * counts[i], device=maps.device) + 0.5) / counts[i]
        return start[i][:, None] + steps * (size[i] / bins[i])[:, None]

    ys, xs = places(0), places(1)
    grid = ys[:, :, None].expand(-1, -1, xs.size(1)), xs[:, None, :].expand(-1, ys.size(1), -1)
    values = _sample(maps, *grid)
    values = values.unflatten(3, (bins[1], counts[1])).unflatten(2, (bins[0], counts[0]))
    return values.mean((3, 5))


@implements("npu_roi_align")
def npu_roi_align(
    input, rois, spatial_scale, pooled_height, pooled_width, sample_num, roi_end_mode
):
    name = "npu_roi_align"
    require(
        rois.dim() == 2 and rois.size(1) == 5,
        f"{name}: rois has shape {list(rois.shape)}; allowed: (n, 5).",
    )
    require(
        roi_end_mode in (0, 1, 3),
        f"{name}: roi_end_mode is {roi_end_mode}; allowed: 0, 1, 3.",
        "VALUE",
    )
    boxes = wide(rois)
    shift = 0.5 if roi_end_mode == 3 else 0.0
    end = 1.0 if roi_end_mode == 1 else 0.0
    x1, y1 = boxes[:, 1] * spatial_scale - shift, boxes[:, 2] * spatial_scale - shift
    x2, y2 = (
        (boxes[:, 3] + end) * spatial_scale - shift,
        (boxes[:, 4] + end) * spatial_scale - shift,
    )
    w, h = x2 - x1, y2 - y1
    if roi_end_mode != 3:
        w, h = w.clamp(min=1), h.clamp(min=1)

    maps, bins = wide(input), (pooled_height, pooled_width)
    image = boxes[:, 0].to(torch.int64)
    if sample_num > 0:
        pooled = _pooled(maps.index_select(0, image), (y1, x1), (h, w), bins, (sample_num,) * 2)
        return pooled.to(input.dtype)
    # As many samples as a bin has pixels: regions differ.
    pooled = []
    for r in range(rois.size(0)):
        counts = [math.ceil(float(s[r]) / b) for s, b in zip((h, w), bins)]
        here = slice(r, r + 1)
        if min(counts) < 1:
            pooled.append(maps.new_zeros(1, maps.size(1), *bins))
            continue
        region = maps.index_select(0, image[here])
        pooled.append(_pooled(region, (y1[here], x1[here]), (h[here], w[here]), bins, counts))
    empty = maps.new_empty(0, maps.size(1), *bins)
    return (torch.cat(pooled) if pooled else empty).to(input.dtype)


@implements("npu_anchor_response_flags")
def npu_anchor_response_flags(input, featmap_size, stride, num_base_anchors):
    name = "npu_anchor_response_flags"
    require(
        input.dim() == 2 and input.size(1) == 4,
        f"{name}: the input has shape {list(input.shape)}; allowed: (n, 4).",
    )
    high, across = featmap_size
    boxes = wide(input)
    x = torch.floor((boxes[:, 0] + boxes[:, 2]) / 2 / stride[0]).clamp(0, across - 1)
    y = torch.floor((boxes[:, 1] + boxes[:, 3]) / 2 / stride[1]).clamp(0, high - 1)
    cells = torch.zeros(high * across, dtype=torch.uint8, device=input.device)
    cells = cells.scatter(0, (y * across + x).to(torch.int64), 1)
    return cells.repeat_interleave(num_base_anchors)


@implements("npu_yolo_boxes_encode")
def npu_yolo_boxes_encode(input, gt_bboxes, stride, performance_mode=False):
    """Shifts of centres in cells, and logarithms of the ratios of sizes."""
    name = "npu_yolo_boxes_encode"
    for what, x in (("anchor_boxes", input), ("gt_bboxes", gt_bboxes)):
        require(
            x.dim() == 2 and x.numel() > 0 and x.size(1) == 4,
            f"{name}: Non-empty 2D {what} tensor expected but got a tensor with sizes {list(x.shape)}; "
            "allowed: (n, 4).",
        )
    require(
        stride.dim() == 1 and stride.numel() > 0,
        f"{name}: Non-empty 1D stride tensor expected but got a tensor with sizes {list(stride.shape)}.",
    )
    require(
        input.shape == gt_bboxes.shape,
        f"{name}: anchor_boxes has shape {list(input.shape)} and gt_bboxes {list(gt_bboxes.shape)}; both "
        "must be the same.",
    )
    require(
        stride.size(0) == gt_bboxes.size(0),
        f"{name}: stride's length should be equal gt_bboxes' num, but got stride length {stride.size(0)} "
        f"for {gt_bboxes.size(0)} boxes.",
    )
    require(
        stride.dtype == torch.int32,
        f"{name}: int32 strdie tensor expected but got a tensor with dtype: {stride.dtype}.",
    )
    a, b = ((c[0] + c[2], c[1] + c[3], c[2] - c[0], c[3] - c[1]) for c in (
        _corners(input.t(), False), _corners(gt_bboxes.t(), False)
    ))  # fmt: skip
    tiny = 1e-6
    shifts = [((g - p) / 2 / stride + 0.5).clamp(tiny, 1 - tiny) for p, g in zip(a[:2], b[:2])]
    sizes = [torch.log((g / p).clamp(min=tiny)) for p, g in zip(a[2:], b[2:])]
    return torch.stack(shifts + sizes, -1).to(input.dtype)


@implements("npu_grid_assign_positive")
def npu_grid_assign_positive(
    input, overlaps, box_responsible_flags, max_overlaps, argmax_overlaps, gt_max_overlaps,
    gt_argmax_overlaps, num_gts, pos_iou_thr, min_pos_iou, gt_max_assign_all,
):  # fmt: skip
    """Of several boxes of ground truth that want an anchor, the last one gets it."""
    name = "npu_grid_assign_positive"
    n = input.numel()
    require(
        list(overlaps.shape) == [num_gts, n],
        f"{name}: overlaps has shape {list(overlaps.shape)}; it must be [num_gts, boxes], {[num_gts, n]}.",
    )
    for what, x, size in (
        ("box_responsible_flags", box_responsible_flags, n), ("max_overlaps", max_overlaps, n),
        ("argmax_overlaps", argmax_overlaps, n), ("gt_max_overlaps", gt_max_overlaps, num_gts),
        ("gt_argmax_overlaps", gt_argmax_overlaps, num_gts),
    ):  # fmt: skip
        require(
            x.numel() == size,
            f"{name}: {what} has {x.numel()} numbers; it must have {size}.",
        )
    within(name, "gt_argmax_overlaps", gt_argmax_overlaps, 0, n - 1)
    flags = box_responsible_flags.to(torch.bool)
    found = flags & (max_overlaps > pos_iou_thr)
    result = torch.where(found, (argmax_overlaps + 1).to(input.dtype), input)
    wanted = gt_max_overlaps > min_pos_iou
    places = torch.arange(1, num_gts + 1, device=input.device)
    if gt_max_assign_all:
        same = (overlaps == gt_max_overlaps[:, None]) & wanted[:, None]
        numbers = torch.cat((places.new_zeros(1, n), same * places[:, None])).amax(0)
    else:
        numbers = places.new_zeros(n).scatter_reduce(
            0, gt_argmax_overlaps.to(torch.int64), places * wanted, "amax"
        )
    return torch.where(flags & (numbers > 0), numbers.to(input.dtype), result)
