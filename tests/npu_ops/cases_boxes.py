# SPDX-License-Identifier: Apache-2.0
"""Boxes and regions."""

import math

import torch
from table import add, rand

ONE = (torch.float32,)


def boxes(n):
    xy = rand(n, 2, low=0, high=8)
    return torch.cat((xy, xy + rand(n, 2, low=1, high=6)), 1)


def parts(a, b):
    inter = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(
        0.0, min(a[3], b[3]) - max(a[1], b[1])
    )
    area = [(c[2] - c[0]) * (c[3] - c[1]) for c in (a, b)]
    return inter, area[0], area[1]


def iou(bx, gt, mode=0):
    out = []
    for g in gt.tolist():
        row = []
        for a in bx.tolist():
            inter, one, two = parts(a, g)
            row.append(inter / (two if mode else one + two - inter))
        out.append(row)
    return torch.tensor(out, dtype=torch.float64)


for name in ("npu_iou", "npu_ptiou"):
    for mode in (0, 1):
        add(name, iou, boxes(4), boxes(3), mode, label=str(mode), dtypes=ONE)


def generalised(kind):
    """Written with tensors of single numbers, so that autograd goes through."""

    def call(a, b, trans=False, is_cross=False, mode=0, flag=False):
        def corners(x):
            return (
                (x[0] - x[2] / 2, x[1] - x[3] / 2, x[0] + x[2] / 2, x[1] + x[3] / 2)
                if trans
                else x.unbind()
            )

        def one(p, q):
            p, q = corners(p), corners(q)
            zero = torch.zeros((), dtype=torch.float64)
            w = torch.maximum(zero, torch.minimum(p[2], q[2]) - torch.maximum(p[0], q[0]))
            h = torch.maximum(zero, torch.minimum(p[3], q[3]) - torch.maximum(p[1], q[1]))
            pa, qa = (p[2] - p[0]) * (p[3] - p[1]), (q[2] - q[0]) * (q[3] - q[1])
            union = pa + qa - w * h
            ratio = w * h / (pa if mode else union)
            hull = [
                torch.minimum(p[0], q[0]),
                torch.minimum(p[1], q[1]),
                torch.maximum(p[2], q[2]),
                torch.maximum(p[3], q[3]),
            ]
            if kind == "giou":
                area = (hull[2] - hull[0]) * (hull[3] - hull[1])
                return ratio - (area - union) / area
            far = ((p[0] + p[2] - q[0] - q[2]) ** 2 + (p[1] + p[3] - q[1] - q[3]) ** 2) / 4
            value = ratio - far / ((hull[2] - hull[0]) ** 2 + (hull[3] - hull[1]) ** 2)
            if kind == "diou":
                return value
            v = (
                4
                / math.pi**2
                * (
                    torch.atan((q[2] - q[0]) / (q[3] - q[1]))
                    - torch.atan((p[2] - p[0]) / (p[3] - p[1]))
                )
                ** 2
            )
            return value - (v / (1 - ratio + v)).detach() * v

        if not is_cross:
            values = torch.stack([one(p, q) for p, q in zip(a.t(), b.t())])
            return values[:, None] if kind == "giou" else values[None]
        table = torch.stack([torch.stack([one(p, q) for p in a.t()]) for q in b.t()])
        return table.t() if kind == "giou" else table

    return call


for kind in ("giou", "diou", "ciou"):
    name, f = f"npu_{kind}", generalised(kind)
    add(
        name,
        f,
        boxes(5).t().contiguous(),
        boxes(5).t().contiguous(),
        False,
        False,
        label="pairs",
        dtypes=ONE,
        grad=(0, 1),
    )
    add(
        name,
        f,
        boxes(4).t().contiguous(),
        boxes(3).t().contiguous(),
        False,
        True,
        label="cross",
        dtypes=ONE,
    )
    add(
        name,
        f,
        rand(4, 5, low=1, high=4),
        rand(4, 5, low=1, high=4),
        True,
        False,
        1,
        label="centres",
        dtypes=ONE,
    )
add(
    "_npu_ciou",
    lambda *a: (generalised("ciou")(*a), None),
    boxes(3).t().contiguous(),
    boxes(3).t().contiguous(),
    False,
    False,
    0,
    True,
    dtypes=ONE,
)

NUMBERS = (0.1, 0.2, 0.0, -0.1, 0.5, 0.5, 1.0, 2.0)


def centre(b):
    return (b[0] + b[2]) / 2, (b[1] + b[3]) / 2, b[2] - b[0] + 1, b[3] - b[1] + 1


def encode(anchors, truth, *n):
    out = []
    for a, g in zip(anchors.tolist(), truth.tolist()):
        p, q = centre(a), centre(g)
        d = [
            (q[0] - p[0]) / p[2],
            (q[1] - p[1]) / p[3],
            math.log(q[2] / p[2]),
            math.log(q[3] / p[3]),
        ]
        out.append([(d[i] - n[i]) / n[4 + i] for i in range(4)])
    return torch.tensor(out, dtype=torch.float64)


def decode(rois, deltas, *n):
    *n, shape, clip = n
    out = []
    for r, d in zip(rois.tolist(), deltas.tolist()):
        p = centre(r)
        d = [d[i] * n[4 + i] + n[i] for i in range(4)]
        top = abs(math.log(clip))
        w, h = (
            p[2] * math.exp(max(-top, min(top, d[2]))),
            p[3] * math.exp(max(-top, min(top, d[3]))),
        )
        x, y = p[0] + p[2] * d[0], p[1] + p[3] * d[1]
        box = [x - w / 2 + 0.5, y - h / 2 + 0.5, x + w / 2 - 0.5, y + h / 2 - 0.5]
        ends = (shape[1] - 1, shape[0] - 1) * 2
        out.append([max(0, min(e, v)) for v, e in zip(box, ends)])
    return torch.tensor(out, dtype=torch.float64)


add("npu_bounding_box_encode", encode, boxes(4), boxes(4), *NUMBERS, dtypes=ONE)
add("npu_bounding_box_decode", decode, boxes(4), rand(4, 4), *NUMBERS, [9, 12], 0.3, dtypes=ONE)


def survivors(bx, scores, threshold, floor=-math.inf):
    order = sorted(
        (i for i in range(len(scores)) if scores[i] > floor), key=lambda i: (-scores[i], i)
    )
    kept = []
    for i in order:
        if all(
            (lambda t: t[0] / (t[1] + t[2] - t[0]))(parts(bx[i], bx[j])) <= threshold for j in kept
        ):
            kept.append(i)
    return kept


def nms4(bx, scores, size, t, floor):
    kept = survivors(bx.tolist(), scores.tolist(), float(t), float(floor))[: int(size)]
    return torch.tensor(kept + [0] * (int(size) - len(kept)), dtype=torch.int32), torch.tensor(
        len(kept), dtype=torch.int32
    )


for size in (8, 2):
    add(
        "npu_nms_v4",
        nms4,
        boxes(8),
        rand(8),
        size,
        torch.tensor(0.2),
        torch.tensor(-1.0),
        label=str(size),
        dtypes=ONE,
    )


def nms_mask(x, t):
    rows = sorted(x.tolist(), key=lambda r: -r[4])
    kept = survivors([r[:4] for r in rows], [r[4] for r in rows], t)
    mask = torch.zeros(len(rows), dtype=torch.uint8)
    mask[kept] = 1
    return torch.tensor(rows, dtype=torch.float64), torch.arange(len(rows), dtype=torch.int32), mask


add(
    "npu_nms_with_mask",
    nms_mask,
    torch.cat(
        (
            boxes(8),
            torch.arange(8, dtype=torch.float64)[
                torch.randperm(8, generator=torch.Generator().manual_seed(3))
            ][:, None],
        ),
        1,
    ),
    0.2,
    dtypes=ONE,
)


def bilinear(x, y, c):
    H, W = x.shape[-2:]
    if y < -1 or y > H or c < -1 or c > W:
        return torch.zeros(x.shape[0], dtype=torch.float64)
    y, c = min(max(y, 0), H - 1), min(max(c, 0), W - 1)
    y0, c0 = int(y), int(c)
    y1, c1 = min(y0 + 1, H - 1), min(c0 + 1, W - 1)
    a, b = y - y0, c - c0
    return (
        (1 - a) * (1 - b) * x[:, y0, c0]
        + (1 - a) * b * x[:, y0, c1]
        + a * (1 - b) * x[:, y1, c0]
        + a * b * x[:, y1, c1]
    )


def roi_align(x, rois, scale, ph, pw, n, mode):
    out = torch.zeros(rois.shape[0], x.shape[1], ph, pw, dtype=torch.float64)
    for r, (batch, *b) in enumerate(rois.tolist()):
        shift, end = (0.5 if mode == 3 else 0), (1 if mode == 1 else 0)
        x1, y1, x2, y2 = (
            b[0] * scale - shift,
            b[1] * scale - shift,
            (b[2] + end) * scale - shift,
            (b[3] + end) * scale - shift,
        )
        w, h = x2 - x1, y2 - y1
        if mode != 3:
            w, h = max(w, 1), max(h, 1)
        for i in range(ph):
            for j in range(pw):
                for p in range(n):
                    for q in range(n):
                        y, c = y1 + (i + (p + 0.5) / n) * h / ph, x1 + (j + (q + 0.5) / n) * w / pw
                        out[r, :, i, j] += bilinear(x[int(batch)], y, c) / n**2
    return out


ROIS = torch.cat((torch.tensor([[0.0], [1.0], [0.0]], dtype=torch.float64), boxes(3)), 1)
for mode in (0, 1, 3):
    add(
        "npu_roi_align",
        roi_align,
        rand(2, 3, 6, 7),
        ROIS,
        0.5,
        3,
        2,
        2,
        mode,
        label=str(mode),
        dtypes=ONE,
        tolerance=1e-4,
    )


def flags(bx, size, stride, anchors):
    out = torch.zeros(size[0], size[1], anchors, dtype=torch.uint8)
    for b in bx.tolist():
        x, y = int((b[0] + b[2]) / 2 // stride[0]), int((b[1] + b[3]) / 2 // stride[1])
        out[min(max(y, 0), size[0] - 1), min(max(x, 0), size[1] - 1)] = 1
    return out.flatten()


add("npu_anchor_response_flags", flags, boxes(4), [4, 5], [2, 3], 3, dtypes=ONE)
