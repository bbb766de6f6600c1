# SPDX-License-Identifier: Apache-2.0
"""Gradients of shapes, products, convolutions, boxes and spectra: against autograd through a plain forward."""

import math

import torch
import torch.nn.functional as F
from cases_boxes import ROIS, boxes, roi_align
from table import add, ints, rand, through

ONE = (torch.float32,)


# ---- gathers and shapes
def of_shape(forward):
    """Reference of (grad, sizes, ...): the gradient of a tensor of those sizes."""

    def call(grad, size, *rest):
        x = torch.zeros(list(size), dtype=torch.float64, requires_grad=True)
        return torch.autograd.grad(forward(x, *rest), x, grad)[0]

    return call


add(
    "npu_gather_backward",
    of_shape(lambda x, d, i, s: x.gather(d, i)),
    rand(2, 3),
    [2, 4],
    1,
    ints(0, 4, 2, 3),
    False,
)
add(
    "npu_gather_sparse_index_backward",
    of_shape(lambda x, i: x[i]),
    rand(2, 3, 5),
    [4, 5],
    ints(0, 4, 2, 3),
)
add(
    "repeat_interleave_backward_int",
    through(lambda x, n, d=None: x.repeat_interleave(n, d), (0,)),
    rand(2, 9),
    rand(2, 3),
    3,
    1,
)
add(
    "repeat_interleave_backward_int",
    through(lambda x, n, d=None: x.repeat_interleave(n, d), (0,)),
    rand(18),
    rand(2, 3),
    3,
    label="flat",
)
REPEATS = torch.tensor([2, 0, 3])
add(
    "repeat_interleave_backward_tensor",
    through(lambda x, n, d=None: x.repeat_interleave(n, d), (0,)),
    rand(2, 5),
    rand(2, 3),
    REPEATS,
    1,
)
add(
    "repeat_interleave_backward_tensor",
    through(lambda x, n, d=None: x.repeat_interleave(n, d), (0,)),
    rand(5),
    rand(3),
    REPEATS,
    label="flat",
)
T = "npu_confusion_transpose_backward"
add(
    T,
    lambda g, p, s, f: of_shape(lambda x: x.permute(p).reshape(4, 6))(g, s),
    rand(4, 6),
    [1, 0, 2],
    [2, 4, 3],
    False,
)
add(
    T,
    lambda g, p, s, f: of_shape(lambda x: x.reshape(2, 4, 3).permute(p))(g, s),
    rand(4, 3, 2),
    [1, 2, 0],
    [4, 6],
    True,
    label="first",
)

# ---- products
A, B = rand(2, 3, 4), rand(2, 4, 5)
for name, place in (("npu_bmm_v2_mat1_backward", 0), ("npu_bmm_v2_mat2_backward", 1)):
    add(
        name,
        lambda g, a, b, s, place=place: through(lambda a, b: torch.matmul(a, b), (place,))(g, a, b),
        rand(2, 3, 5),
        A,
        B,
        list((A, B)[place].shape),
    )
shared = rand(4, 5)
add(
    "npu_bmm_v2_mat2_backward",
    lambda g, a, b, s: through(lambda a, b: torch.matmul(a, b), (1,))(g, a, b),
    rand(2, 3, 5),
    A,
    shared,
    [4, 5],
    label="broadcast",
)


def double(gs, go, g, a, b, mask):
    leaves = [t.clone().requires_grad_() for t in (g, a, b)]
    first = torch.autograd.grad(
        torch.matmul(leaves[1], leaves[2]), leaves[1:], leaves[0], create_graph=True
    )
    pairs = [(f, s) for f, s in zip(first, (gs, go)) if s is not None]
    grads = torch.autograd.grad(
        [f for f, _ in pairs], leaves, [s for _, s in pairs], allow_unused=True
    )
    return tuple(
        t.new_empty(0) if not m else torch.zeros_like(t) if x is None else x
        for t, x, m in zip(leaves, grads, mask)
    )


add(
    "matmul_double_backward",
    double,
    rand(3, 4),
    rand(4, 5),
    rand(3, 5),
    rand(3, 4),
    rand(4, 5),
    [True] * 3,
    dtypes=ONE,
)
add(
    "matmul_double_backward",
    double,
    None,
    rand(4, 5),
    rand(3, 5),
    rand(3, 4),
    rand(4, 5),
    [True, True, False],
    label="one",
    dtypes=ONE,
)


# ---- convolutions
def conv_grads(forward, count):
    def call(grad, x, w, kernel, stride, padding, *rest):
        *rest, mask = rest
        b = torch.zeros(grad.shape[1], dtype=torch.float64)
        leaves = [t.clone().requires_grad_() for t in (x, w, b)]
        grads = torch.autograd.grad(forward(*leaves, stride, padding, *rest), leaves, grad)
        return tuple(g if m else None for g, m in zip(grads[:count], mask))

    return call


add(
    "slow_conv_dilated2d_backward",
    conv_grads(lambda x, w, b, s, p, d: F.conv2d(x, w, b, s, p, d), 3),
    rand(1, 4, 5, 5),
    rand(1, 3, 7, 7),
    rand(4, 3, 3, 3),
    [3, 3],
    [1, 1],
    [1, 1],
    [2, 2],
    [True] * 3,
    dtypes=ONE,
)
add(
    "slow_conv_transpose2d_backward",
    conv_grads(lambda x, w, b, s, p, o, d: F.conv_transpose2d(x, w, b, s, p, o, 1, d), 3),
    rand(1, 2, 10, 10),
    rand(1, 3, 5, 5),
    rand(3, 2, 3, 3),
    [3, 3],
    [2, 2],
    [1, 1],
    [1, 1],
    [1, 1],
    [True] * 3,
    dtypes=ONE,
)
add(
    "_conv_depthwise2d_backward",
    conv_grads(lambda x, w, b, s, p, d: F.conv2d(x, w, b, s, p, d, 3), 2),
    rand(1, 3, 5, 5),
    rand(1, 3, 5, 5),
    rand(3, 1, 3, 3),
    [3, 3],
    [1, 1],
    [1, 1],
    [1, 1],
    [True, True],
    dtypes=ONE,
)


# ---- boxes
def corners(x):
    return x[0], x[1], x[2], x[3]


def plain_iou(kind, a, b):
    a, b = corners(a), corners(b)
    w = torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0])
    h = torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1])
    inner = w.clamp(min=0) * h.clamp(min=0)
    areas = [(x[2] - x[0]) * (x[3] - x[1]) for x in (a, b)]
    union = areas[0] + areas[1] - inner
    hull = (
        torch.maximum(a[2], b[2]) - torch.minimum(a[0], b[0]),
        torch.maximum(a[3], b[3]) - torch.minimum(a[1], b[1]),
    )
    iou = inner / union
    if kind == "giou":
        return (iou - (hull[0] * hull[1] - union) / (hull[0] * hull[1]))[:, None]
    apart = ((a[0] + a[2] - b[0] - b[2]) / 2) ** 2 + ((a[1] + a[3] - b[1] - b[3]) / 2) ** 2
    diou = iou - apart / (hull[0] ** 2 + hull[1] ** 2)
    if kind == "ciou":
        slope = [torch.atan((x[2] - x[0]) / (x[3] - x[1])) for x in (a, b)]
        v = 4 / math.pi**2 * (slope[0] - slope[1]) ** 2
        diou = diou - (v / (1 - iou + v)).detach() * v
    return diou[None]


BOXES, TRUTH = (boxes(5).t().contiguous() for _ in range(2))
for kind, grad in (("giou", rand(5, 1)), ("diou", rand(1, 5))):
    ref = through(lambda a, b, t, c, m, kind=kind: plain_iou(kind, a, b), (0, 1))
    add(f"npu_{kind}_backward", ref, grad, BOXES, TRUTH, False, False, 0, dtypes=ONE)
add(
    "npu_ciou_backward",
    through(lambda a, b, s, t, c, m: plain_iou("ciou", a, b), (0, 1)),
    rand(1, 5),
    BOXES,
    TRUTH,
    None,
    False,
    False,
    0,
    dtypes=ONE,
)


def roi_grad(grad, rois, shape, pw, ph, scale, n, mode):
    return of_shape(lambda x: roi_align(x, rois, scale, ph, pw, n, mode))(grad, shape)


add(
    "npu_roi_alignbk",
    roi_grad,
    rand(3, 3, 3, 2),
    ROIS,
    [2, 3, 6, 7],
    2,
    3,
    0.5,
    2,
    3,
    dtypes=ONE,
    tolerance=1e-4,
)


# ---- softmax, spectra
def softmax_grad(x, g, y):
    return y * (g - (g * y).sum(-1, keepdim=True))


add(
    "npu_attn_softmax_backward_",
    softmax_grad,
    rand(3, 5),
    rand(3, 5),
    torch.softmax(rand(3, 5), -1),
    dtypes=ONE,
)
SIGNAL, WINDOW = rand(2, 32), rand(8, low=0.5, high=1)
SPECTRUM = torch.view_as_real(
    torch.stft(SIGNAL, 8, 4, window=WINDOW, center=False, return_complex=True)
)
add(
    "stft_backward",
    through(
        lambda x, n, h, wl, w: torch.view_as_real(
            torch.stft(x, n, h, wl, w, center=False, return_complex=True)
        ),
        (0,),
    ),
    torch.ones_like(SPECTRUM),
    SIGNAL,
    8,
    4,
    8,
    WINDOW,
    dtypes=ONE,
)
