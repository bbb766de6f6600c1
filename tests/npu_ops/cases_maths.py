# SPDX-License-Identifier: Apache-2.0
"""Activations, losses, optimisers, convolutions."""

import math

import torch
from table import add, ints, rand, through

ONE = (torch.float32,)


# ---- activations
def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def gelu(x, kind="none"):
    if kind == "tanh":
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def halves(x, dim):
    n = x.shape[dim] // 2
    return x.narrow(dim, 0, n), x.narrow(dim, n, n)


def swiglu(x, dim=-1):
    a, b = halves(x, dim)
    return a * sigmoid(a) * b


add("npu_swiglu", swiglu, rand(3, 8), grad=(0,))
add("npu_swiglu", swiglu, rand(4, 3, 2), 0, label="dim0", grad=(0,))
add("npu_swiglu_backward", through(swiglu, (0,)), rand(3, 4), rand(3, 8), -1)


def clipped(x, *, group_index=None, dim=-1, alpha=1.702, limit=7.0, bias=1.0, interleaved=True):
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else halves(x, dim)
    a, b = a.clamp(max=limit), b.clamp(-limit, limit)
    y = a * sigmoid(alpha * a) * (b + bias)
    if group_index is not None:
        y[int(group_index.sum()) :] = 0
    return y


add("npu_clipped_swiglu", clipped, rand(4, 8), limit=1.0)
add(
    "npu_clipped_swiglu",
    clipped,
    rand(4, 8),
    interleaved=False,
    alpha=1.0,
    label="halves",
    group_index=torch.tensor([1, 2]),
)


def geglu(x, dim=-1, approximate=1, activate_left=False):
    left, right = halves(x, dim)
    g = gelu(left if activate_left else right, "tanh" if approximate else "none")
    return (right if activate_left else left) * g, g


for approximate in (0, 1):
    for left in (False, True):
        label = f"{approximate}{left}"
        add("npu_geglu", geglu, rand(3, 8), -1, approximate, left, label=label, grad=(0,))
        _x = rand(3, 8)
        gr = lambda dy, x, g, *rest: through(lambda x, *r: geglu(x, *r)[0], (0,))(dy, x, *rest)  # noqa: E731
        add(
            "npu_geglu_grad",
            gr,
            rand(3, 4),
            _x,
            geglu(_x, -1, approximate, left)[1],
            -1,
            approximate,
            left,
            label=label,
            dtypes=ONE,
        )
for kind in ("none", "tanh"):
    add(
        "npu_gelu",
        lambda x, *, approximate: gelu(x, approximate),
        rand(4, 5),
        approximate=kind,
        label=kind,
        grad=(0,),
    )
    add(
        "npu_gelu_backward",
        through(lambda x, *, approximate: gelu(x, approximate), (0,)),
        rand(4, 5),
        rand(4, 5),
        approximate=kind,
        label=kind,
    )
    add(
        "npu_gelu_mul",
        lambda x, *, approximate: gelu(halves(x, -1)[0], approximate) * halves(x, -1)[1],
        rand(4, 6),
        approximate=kind,
        label=kind,
    )
fast = lambda x: x * sigmoid(1.702 * x)  # noqa: E731
silu = lambda x: x * sigmoid(x)  # noqa: E731
mish = lambda x: x * torch.tanh(torch.log1p(torch.exp(x)))  # noqa: E731
for name, f in (
    ("npu_fast_gelu", fast),
    ("fast_gelu", fast),
    ("npu_silu", silu),
    ("npu_mish", mish),
):
    add(name, f, rand(4, 5), grad=(0,))
    add(name, f, rand(0, 5), label="empty", dtypes=ONE)
add("npu_silu_", silu, rand(4, 5))
add("npu_fast_gelu_backward", through(fast, (0,)), rand(4, 5), rand(4, 5))
add("npu_mish_backward", through(mish, (0,)), rand(4, 5), rand(4, 5))
_x = rand(4, 5)
add("npu_silu_backward", lambda g, x, y: through(silu, (0,))(g, x), rand(4, 5), _x, silu(_x))


def masked(x, mask, scale=1, fixed=False):
    return torch.softmax(
        torch.where(mask, torch.tensor(-10000.0, dtype=torch.float64), x * scale), -1
    )


MASK = ints(0, 2, 2, 1, 4, 6) == 1
MASK[0, 0, 1] = True
add("npu_scaled_masked_softmax", masked, rand(2, 3, 4, 6), MASK, 0.7, grad=(0,))
_x = rand(2, 3, 4, 6)
add(
    "npu_scaled_masked_softmax_backward",
    lambda g, y, m, s, f: through(lambda x: masked(x, m, s), (0,))(g, _x),
    rand(2, 3, 4, 6),
    masked(_x, MASK, 0.7),
    MASK,
    0.7,
    False,
    dtypes=ONE,
)


# ---- losses
def cross(x, t, weight=None, reduction="mean", ignore_index=-100, label_smoothing=0.0):
    logp = x - torch.logsumexp(x, -1, keepdim=True)
    w = torch.ones(x.shape[1], dtype=torch.float64) if weight is None else weight
    each, total = [], 0.0
    for row, c in zip(logp, t.tolist()):
        if c == ignore_index:
            each.append(row.sum() * 0)
            continue
        hard = -w[c] * row[c]
        soft = -(w * row).sum() / x.shape[1]
        each.append((1 - label_smoothing) * hard + label_smoothing * soft)
        total = total + w[c]
    each = torch.stack(each)
    loss = (
        each
        if reduction == "none"
        else (each.sum() / total if reduction == "mean" else each.sum()).reshape(1)
    )
    return (
        loss,
        logp.detach(),
        torch.empty(0, dtype=torch.float64),
        torch.empty(0, dtype=torch.float64),
    )


TARGET = torch.tensor([1, 0, 3, 3, 2])
for reduction in ("mean", "sum", "none"):
    add(
        "npu_cross_entropy_loss",
        cross,
        rand(5, 4),
        TARGET,
        reduction=reduction,
        label=reduction,
        grad=(0,),
    )
add(
    "npu_cross_entropy_loss",
    cross,
    rand(5, 4),
    TARGET,
    rand(4, low=0.5, high=2),
    "mean",
    3,
    0.1,
    label="all",
    grad=(0,),
)
soft = lambda x, y: -(y * torch.log_softmax(x, -1)).sum(-1)  # noqa: E731
add("npu_softmax_cross_entropy_with_logits", soft, rand(4, 5), rand(4, 5, low=0, high=1), grad=(0,))
add(
    "npu_softmax_cross_entropy_with_logits_backward",
    through(soft, (0,)),
    rand(4),
    rand(4, 5),
    rand(4, 5, low=0, high=1),
)
_t = rand(4, 5)
for red, f in (
    (0, lambda x: (x - _t).abs()),
    (1, lambda x: (x - _t).abs().mean()),
    (2, lambda x: (x - _t).abs().sum()),
):
    add(
        "l1_loss_backward",
        lambda g, x, t, r, f=f: through(f, (0,))(g, x),
        rand(4, 5) if red == 0 else rand(1)[0],
        rand(4, 5),
        _t,
        red,
        label=str(red),
    )


# ---- optimisers
def adam_w(p1, p2, lr, wd, b1, b2, eps, g, top, amsgrad, maximize, *, var, m, v):
    g = -g if maximize else g
    m = b1 * m + (1 - b1) * g
    v = b2 * v + (1 - b2) * g * g
    u = torch.maximum(top, v) if amsgrad else v
    var = var * (1 - lr * wd) - lr * (m / (1 - p1 * b1)) / (torch.sqrt(u / (1 - p2 * b2)) + eps)
    return var, m, v


state = {"var": rand(3, 4), "m": rand(3, 4), "v": rand(3, 4, low=0, high=1)}
add(
    "npu_apply_adam_w.out",
    adam_w,
    0.9**4,
    0.99**4,
    0.1,
    0.01,
    0.9,
    0.99,
    1e-6,
    rand(3, 4),
    None,
    False,
    False,
    dtypes=ONE,
    **state,
)
add(
    "npu_apply_adam_w.out",
    adam_w,
    0.9,
    0.99,
    0.1,
    0.01,
    0.9,
    0.99,
    1e-6,
    rand(3, 4),
    rand(3, 4, low=0, high=1),
    True,
    True,
    label="amsgrad",
    dtypes=ONE,
    **state,
)


def adam(p1, p2, lr, b1, b2, eps, g, locking, nesterov, *, var, m, v):
    rate = lr * math.sqrt(1 - p2) / (1 - p1)
    m, v = m * b1 + g * (1 - b1), v * b2 + g * g * (1 - b2)
    step = m * b1 + g * (1 - b1) if nesterov else m
    return var - rate * step / (torch.sqrt(v) + eps), m, v


for nesterov in (False, True):
    add(
        "npu_apply_adam.out",
        adam,
        0.9**4,
        0.99**4,
        0.1,
        0.9,
        0.99,
        1e-6,
        rand(3, 4),
        False,
        nesterov,
        label=str(nesterov),
        dtypes=ONE,
        **state,
    )
add("_amp_foreach_non_finite_check", lambda g: False, [rand(3), rand(4)], label="fine", fake=False)
add(
    "_amp_foreach_non_finite_check",
    lambda g: True,
    [rand(3), torch.tensor([1.0, float("inf")])],
    label="inf",
    fake=False,
)
add("npu_alloc_float_status", lambda x: torch.zeros(8, dtype=torch.float64), rand(1), dtypes=ONE)
for name in ("npu_get_float_status", "npu_clear_float_status"):
    add(
        name,
        lambda x: torch.zeros(8, dtype=torch.float64),
        torch.zeros(8, dtype=torch.float64),
        dtypes=ONE,
    )


# ---- convolutions
def conv2(x, w, b, stride, padding, dilation, groups):
    H, W = x.shape[2:]
    outs, ins, KH, KW = w.shape
    x = torch.nn.functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    oh = (H + 2 * padding[0] - dilation[0] * (KH - 1) - 1) // stride[0] + 1
    ow = (W + 2 * padding[1] - dilation[1] * (KW - 1) - 1) // stride[1] + 1
    rows = []
    for o in range(outs):
        g = o // (outs // groups)
        total = 0 if b is None else b[o]
        for c in range(ins):
            for p in range(KH):
                for q in range(KW):
                    y0, x0 = p * dilation[0], q * dilation[1]
                    part = x[
                        :,
                        g * ins + c,
                        y0 : y0 + (oh - 1) * stride[0] + 1 : stride[0],
                        x0 : x0 + (ow - 1) * stride[1] + 1 : stride[1],
                    ]
                    total = total + w[o, c, p, q] * part
        rows.append(total)
    return torch.stack(rows, 1)


geometry = ([2, 1], [1, 0], [1, 2], 2)
image = (rand(2, 4, 6, 7), rand(6, 2, 3, 2), rand(6))
for name in ("npu_conv2d", "npu_convolution"):
    add(name, conv2, *image, *geometry, grad=(0, 1, 2), dtypes=ONE)


def conv_backward(x, dy, w, stride, padding, dilation, groups, mask):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    b = torch.zeros(w.shape[0], dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(conv2(x, w, b, stride, padding, dilation, groups), (x, w, b), dy)


DY = torch.round(conv2(*image, *geometry))
for name in ("npu_conv2d_backward", "npu_convolution_backward"):
    add(
        name,
        conv_backward,
        image[0],
        DY,
        image[1],
        *geometry,
        [True, True, True],
        dtypes=ONE,
        tolerance=1e-3,
    )
conv3 = lambda x, w, b, s, p, d, g: torch.nn.functional.conv3d(x, w, b, s, p, d, g)  # noqa: E731
volume = (rand(1, 2, 3, 4, 5), rand(3, 2, 2, 2, 2), rand(3))
add("npu_conv3d", conv3, *volume, [1, 1, 1], [0, 1, 0], [1, 1, 1], 1, dtypes=ONE, grad=(0, 1, 2))


def conv3_backward(x, dy, w, s, p, d, g, mask):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    b = torch.zeros(w.shape[0], dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(conv3(x, w, b, s, p, d, g), (x, w, b), dy)


add(
    "npu_conv3d_backward",
    conv3_backward,
    volume[0],
    rand(1, 3, 2, 5, 4),
    volume[1],
    [1, 1, 1],
    [0, 1, 0],
    [1, 1, 1],
    1,
    [True, True, True],
    dtypes=ONE,
    tolerance=1e-3,
)


def transposed(x, w, b, padding, output_padding, stride, dilation, groups):
    f = (
        torch.nn.functional.conv_transpose2d
        if x.dim() == 4
        else torch.nn.functional.conv_transpose3d
    )
    return f(x, w, b, stride, padding, output_padding, groups, dilation)


up = ([1, 0], [1, 0], [2, 1], [1, 1], 2)
small = (rand(2, 4, 3, 4), rand(4, 3, 3, 2), rand(6))
for name in ("npu_conv_transpose2d", "npu_convolution_transpose"):
    add(name, transposed, *small, *up, grad=(0, 1, 2), dtypes=ONE)


def transposed_backward(x, dy, w, padding, output_padding, stride, dilation, groups, mask):
    x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
    b = torch.zeros(w.shape[1] * groups, dtype=torch.float64, requires_grad=True)
    return torch.autograd.grad(
        transposed(x, w, b, padding, output_padding, stride, dilation, groups), (x, w, b), dy
    )


UP = torch.round(transposed(*small, *up))
for name in ("npu_conv_transpose2d_backward", "npu_convolution_transpose_backward"):
    add(
        name,
        transposed_backward,
        small[0],
        UP,
        small[1],
        *up,
        [True, True, True],
        dtypes=ONE,
        tolerance=1e-3,
    )
cube = (rand(1, 2, 2, 3, 2), rand(2, 3, 2, 2, 2))
up3 = ([0, 0, 0], [0, 0, 0], [1, 2, 1], [1, 1, 1], 1)
UP3 = torch.round(transposed(*cube, None, *up3))
add(
    "npu_conv_transpose3d_backward",
    transposed_backward,
    cube[0],
    UP3,
    cube[1],
    *up3,
    [True, True, True],
    dtypes=ONE,
    tolerance=1e-3,
)
