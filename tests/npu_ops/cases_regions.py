# SPDX-License-Identifier: Apache-2.0
"""BERT's attention by parts, suppression by class, pooling by position, deformable and int8 convolution."""

import math

import torch
from cases_boxes import ROIS, boxes, parts
from table import add, ints, rand

ONE = (torch.float32,)


def heads_of(x, batch, length, heads):
    return x.reshape(batch, length, heads, -1).permute(0, 2, 1, 3)


def score(q, k, v, mask, scale, keep_prob):
    """Row by row, as the page says: product, scale, mask, softmax, product, heads side by side."""
    b, n, s, d = q.shape
    out = torch.zeros(b * s, n * d, dtype=torch.float64)
    rows = torch.zeros(b, n, s, s, dtype=torch.float64)
    for i in range(b):
        for h in range(n):
            for t in range(s):
                x = torch.stack([(q[i, h, t] * k[i, h, j]).sum() for j in range(s)])
                e = torch.exp(x * scale + mask[i, 0, t])
                p = e / e.sum()
                rows[i, h, t] = p
                out[i * s + t, h * d : (h + 1) * d] = sum(p[j] * v[i, h, j] for j in range(s))
    return out, rows


QKV = [rand(2, 3, 4, 8, low=-1, high=1) for _ in range(3)]
MASK = rand(2, 1, 4, 4, low=-1, high=0)
add("npu_fused_attention_score", lambda *a: score(*a)[0], *QKV, MASK, 0.4, 1.0, grad=(0, 1, 2))
add(
    "npu_fused_attention_score_fwd",
    # 96 bits that are kept, in whole blocks of 128.
    lambda *a: (*score(*a), torch.tensor([255] * 12 + [0] * 4, dtype=torch.uint8)),
    *QKV, MASK, 0.4, 1.0,
)  # fmt: skip


def score_grad(g, s, q, k, v, mask, scale, keep_prob):
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    p = torch.softmax(torch.einsum("bnid,bnjd->bnij", *leaves[:2]) * scale + MASK, -1)
    out = torch.einsum("bnij,bnjd->bind", p, leaves[2]).reshape(g.shape)
    return torch.autograd.grad(out, leaves, g)


for name in ("npu_fused_attention_score_grad", "npu_fused_attention_score_backward"):
    add(
        name, score_grad, rand(8, 24), score(*QKV, MASK, 0.4, 1.0)[1], *QKV,
        torch.full((16,), 255, dtype=torch.uint8), 0.4, 1.0, dtypes=ONE,
    )  # fmt: skip


def layernorm_qkv(x, wq, wk, wv, gamma, beta, bq, bk, bv, seq_len, heads, eps):
    mean = x.sum(1) / x.shape[1]
    var = ((x - mean[:, None]) ** 2).sum(1) / x.shape[1]
    norm = (x - mean[:, None]) / (var[:, None] + eps) ** 0.5 * gamma + beta
    found = [
        heads_of(norm @ w + b, x.shape[0] // seq_len, seq_len, heads)
        for w, b in ((wq, bq), (wk, bk), (wv, bv))
    ]
    return [norm, *found, mean, var]


HIDDEN = rand(8, 16)
WEIGHTS = [rand(16, 16, low=-0.5, high=0.5) for _ in range(3)]
add(
    "npu_fused_attention_layernorm_qkv_fwd", layernorm_qkv, HIDDEN, *WEIGHTS, rand(16), rand(16),
    rand(16), rand(16), rand(16), 4, 2, 1e-5, dtypes=ONE,
)  # fmt: skip


def qkv_grad(gq, gk, gv, wq, wk, wv, hidden, g_ln):
    x = hidden.clone().requires_grad_()
    weights = [w.clone().requires_grad_() for w in (wq, wk, wv)]
    biases = [torch.zeros(16, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    outs = [heads_of(x @ w + b, 2, 4, 2) for w, b in zip(weights, biases)]
    return list(torch.autograd.grad([*outs, x * 1], [x, *weights, *biases], [gq, gk, gv, g_ln]))


add(
    "npu_fused_attention_qkv_grad", qkv_grad, *[rand(2, 2, 4, 8) for _ in range(3)], *WEIGHTS,
    HIDDEN, rand(8, 16), dtypes=ONE,
)  # fmt: skip


def multi_head(q, k, v, wq, wk, wv, mask, wo, bq, bk, bv, bo, bits, n, size, src, tgt, p, wide):
    batch = q.shape[0] // tgt
    qs = heads_of(q @ wq.T + bq, batch, tgt, n) / math.sqrt(size)
    ks, vs = heads_of(k @ wk.T + bk, batch, src, n), heads_of(v @ wv.T + bv, batch, src, n)
    scores = torch.einsum("bnid,bnjd->bnij", qs, ks) + mask
    e = torch.exp(scores - scores.amax(-1, keepdim=True))
    scores = e / e.sum(-1, keepdim=True)
    context = torch.einsum("bnij,bnjd->bind", scores, vs).reshape(batch * tgt, n * size)
    return context @ wo.T + bo, bits, qs, ks, vs, scores, scores, context


add(
    "npu_multi_head_attention", multi_head, rand(6, 16), rand(10, 16), rand(10, 16), *WEIGHTS,
    rand(2, 1, 3, 5), rand(16, 16, low=-0.5, high=0.5), rand(16), rand(16), rand(16), rand(16),
    ints(0, 255, 16, dtype=torch.uint8), 2, 8, 5, 3, 0.0, True, dtypes=ONE, grad=(0, 1, 3),
)  # fmt: skip


def batch_nms(bx, scores, score_thr, iou_thr, per_class, total):
    b, _, q, _ = bx.shape
    out = [torch.zeros(b, total, 4), torch.zeros(b, total), torch.zeros(b, total)]
    count = torch.zeros(b, dtype=torch.int32)
    for i in range(b):
        chosen = []
        for c in range(scores.shape[2]):
            left = [n for n in range(bx.shape[1]) if scores[i, n, c] > score_thr]
            left.sort(key=lambda n: -float(scores[i, n, c]))
            kept = []
            for n in left:
                box = bx[i, n, c if q > 1 else 0].tolist()
                others = [bx[i, m, c if q > 1 else 0].tolist() for m in kept]
                if all(
                    inter / (one + two - inter) <= iou_thr
                    for inter, one, two in (parts(box, o) for o in others)
                ):
                    kept.append(n)
            chosen += [(float(scores[i, n, c]), c, n) for n in kept[:per_class]]
        chosen.sort(key=lambda row: -row[0])
        for place, (s, c, n) in enumerate(chosen[:total]):
            out[0][i, place] = bx[i, n, c if q > 1 else 0]
            out[1][i, place], out[2][i, place] = s, c
        count[i] = min(len(chosen), total)
    return *(x.double() for x in out), count


for q in (1, 3):
    many = torch.stack([torch.stack([boxes(12) for _ in range(q)], 1) for _ in range(2)])
    for per_class, total in ((5, 20), (2, 4)):
        add(
            "npu_batch_nms", batch_nms, many, rand(2, 12, 3, low=0, high=1), 0.3, 0.4, per_class,
            total, label=f"{q}-{total}", dtypes=ONE,
        )  # fmt: skip


def ps_roi(x, rois, scale, g, dim):
    b, _, r = rois.shape
    out = torch.zeros(b * r, dim, g, g, dtype=torch.float64)
    for n, roi in enumerate(rois.permute(0, 2, 1).reshape(-1, 5).tolist()):
        left, top = round(roi[1]) * scale, round(roi[2]) * scale
        w = max((round(roi[3]) + 1) * scale - left, 0.1) / g
        h = max((round(roi[4]) + 1) * scale - top, 0.1) / g
        for i in range(g):
            for j in range(g):
                y0 = min(max(math.floor(top + i * h), 0), x.shape[2])
                y1 = min(max(math.ceil(top + (i + 1) * h), 0), x.shape[2])
                x0 = min(max(math.floor(left + j * w), 0), x.shape[3])
                x1 = min(max(math.ceil(left + (j + 1) * w), 0), x.shape[3])
                if y1 > y0 and x1 > x0:
                    for c in range(dim):
                        region = x[int(roi[0]), (c * g + i) * g + j, y0:y1, x0:x1]
                        out[n, c, i, j] = region.sum() / ((y1 - y0) * (x1 - x0))
    return out


# Sizes that no multiple of the scale meets, so that rounding to float16 moves no border.
PLACES = torch.tensor(
    [[[0, 0], [1, 5], [2, 3], [9, 12], [11, 14]], [[1, 1], [0, 30], [4, 30], [6, 40], [9, 41]]],
    dtype=torch.float64,
)
add("npu_ps_roi_pooling", ps_roi, rand(2, 18, 8, 8), PLACES, 0.5, 3, 2, grad=(0,))


def ps_roi_grad(g, rois, scale, group, dim, size):
    x = torch.zeros(2, group * group * dim, *size, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(ps_roi(x, rois, scale, group, dim), x, g)[0]


add("npu_ps_roi_pooling_backward", ps_roi_grad, rand(4, 2, 3, 3), PLACES, 0.5, 3, 2, [8, 8])


def deformable(x, w, off, bias, kernel, stride, pad, dil, groups, dg, modulated):
    """Point by point: where it reads, what the four pixels around give."""
    kw, kh = kernel
    n, c = x.shape[:2]
    ho, wo = off.shape[2:]
    dx, dy = off[:, : dg * kh * kw], off[:, dg * kh * kw : 2 * dg * kh * kw]
    cols = torch.zeros(n, c, ho * kh, wo * kw, dtype=torch.float64)
    for b in range(n):
        for g in range(dg):
            for i in range(kh):
                for j in range(kw):
                    at = (g * kh + i) * kw + j
                    for y in range(ho):
                        for z in range(wo):
                            py = y * stride[2] - pad[0] + i * dil[2] + dy[b, at, y, z]
                            px = z * stride[3] - pad[2] + j * dil[3] + dx[b, at, y, z]
                            value = 0
                            y0, x0 = math.floor(float(py)), math.floor(float(px))
                            for a in (y0, y0 + 1):
                                for e in (x0, x0 + 1):
                                    if 0 <= a < x.shape[2] and 0 <= e < x.shape[3]:
                                        weight = (1 - abs(py - a)) * (1 - abs(px - e))
                                        here = x[b, g * c // dg : (g + 1) * c // dg, a, e]
                                        value = value + weight * here
                            if modulated:
                                value = value * off[b, 2 * dg * kh * kw + at, y, z]
                            cols[b, g * c // dg : (g + 1) * c // dg, y * kh + i, z * kw + j] = value
    return torch.nn.functional.conv2d(cols, w, bias, (kh, kw), groups=groups), cols


CONV = (
    rand(2, 4, 5, 6), rand(6, 4, 3, 2), rand(2, 2 * 6 * 3, 3, 3) + 0.013, rand(6), [2, 3],
    [1, 1, 2, 2], [1, 1, 0, 0], [1, 1, 1, 1], 1, 2, True,
)  # fmt: skip
add("npu_deformable_conv2d", deformable, *CONV, dtypes=ONE, grad=(0, 1, 2, 3))
add(
    "npu_deformable_conv2d", deformable, rand(1, 4, 5, 5), rand(4, 2, 3, 3),
    rand(1, 18, 5, 5) + 0.013, None, [3, 3], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], 2, 1, False,
    label="plain", dtypes=ONE,
)  # fmt: skip


def deformable_grad(x, g, cols, w, off, *rest):
    leaves = [t.clone().requires_grad_() for t in (x, w, off)]
    bias = torch.zeros(w.shape[0], dtype=torch.float64, requires_grad=True)
    out = deformable(*leaves, bias, *rest)[0]
    return torch.autograd.grad(out, [*leaves, bias], g)


add(
    "npu_deformable_conv2dbk", deformable_grad, CONV[0], rand(2, 6, 3, 3), rand(2, 4, 9, 6), CONV[1],
    CONV[2], *CONV[4:], dtypes=ONE,
)  # fmt: skip


def quant_conv(x, w, scale, stride, pad, dil, groups, offset_x, mode, dtype, bias, offset):
    x = torch.nn.functional.pad(x.double(), (pad[1], pad[1], pad[0], pad[0]), value=offset_x)
    y = torch.nn.functional.conv2d(x, w.double(), bias.double(), stride, 0, dil, groups)
    y = y * scale.double().view(-1, 1, 1)
    if dtype != torch.int8:
        return y
    y = y + offset.double().view(-1, 1, 1)
    return torch.round(y).clamp(-128, 127).to(torch.int8)


for dtype in (torch.float16, torch.int8):
    add(
        "npu_quant_conv2d", quant_conv, ints(-128, 128, 2, 4, 6, 6, dtype=torch.int8),
        ints(-128, 128, 4, 2, 3, 3, dtype=torch.int8),
        torch.tensor([0.5, 0.001, 0.25, 0.125], dtype=torch.float32) / 64, [2, 1], [1, 0], [1, 2], 2, 3, "rint",
        dtype, ints(-99, 99, 4, dtype=torch.int32),
        None if dtype == torch.float16 else rand(4).float(), label=str(dtype)[6:], dtypes=ONE,
        tolerance=None if dtype == torch.int8 else 1e-3,
    )  # fmt: skip


def adaptive_roi(x, rois, scale, ph, pw, n, mode):
    """As many samples as a bin has pixels, one at a time."""
    out = torch.zeros(rois.shape[0], x.shape[1], ph, pw, dtype=torch.float64)
    for r, (b, x1, y1, x2, y2) in enumerate(rois.tolist()):
        shift = 0.5 if mode == 3 else 0.0
        left, top = x1 * scale - shift, y1 * scale - shift
        w, h = (x2 - x1) * scale, (y2 - y1) * scale
        if mode == 0:
            w, h = max(w, 1.0), max(h, 1.0)
        ny, nx = math.ceil(h / ph), math.ceil(w / pw)
        for i in range(ph):
            for j in range(pw):
                total = 0
                for k in range(ny):
                    for m in range(nx):
                        y = top + (i + (k + 0.5) / ny) * h / ph
                        z = left + (j + (m + 0.5) / nx) * w / pw
                        if -1 <= y <= x.shape[2] and -1 <= z <= x.shape[3]:
                            y, z = min(max(y, 0), x.shape[2] - 1), min(max(z, 0), x.shape[3] - 1)
                            for a in {math.floor(y), min(math.floor(y) + 1, x.shape[2] - 1)}:
                                for e in {math.floor(z), min(math.floor(z) + 1, x.shape[3] - 1)}:
                                    weight = max(0, 1 - abs(y - a)) * max(0, 1 - abs(z - e))
                                    total = total + weight * x[int(b), :, a, e]
                out[r, :, i, j] = total / (ny * nx)
    return out


for mode in (0, 3):
    add(
        "npu_roi_align", adaptive_roi, rand(2, 3, 8, 9), ROIS, 0.5, 2, 3, 0, mode,
        label=f"adaptive{mode}", dtypes=ONE, fake=False,
    )  # fmt: skip
