# SPDX-License-Identifier: Apache-2.0
"""Gradients of norms and losses: against autograd through a plain forward."""

import torch
import torch.nn.functional as F
from table import add, rand, through

ONE = (torch.float32,)


# ---- norms
def layer(z, gamma, beta):
    dims = tuple(range(z.dim() - gamma.dim(), z.dim()))
    mean = z.mean(dims, keepdim=True)
    rstd = 1 / torch.sqrt(((z - mean) ** 2).mean(dims, keepdim=True) + 1e-5)
    return (z - mean) * rstd * gamma + beta, mean, rstd


X, X2, G, DY = rand(2, 3, 8), rand(2, 3, 8), rand(8), rand(2, 3, 8)
ZERO = torch.zeros(8, dtype=torch.float64)


def layer_grads(dy, z, gamma):
    leaves = [t.clone().requires_grad_() for t in (z, gamma, torch.zeros_like(gamma))]
    return torch.autograd.grad(layer(*leaves)[0], leaves, dy)


_, MEAN, RSTD = layer(X, G, ZERO)
add(
    "npu_layernorm_grad",
    lambda g, x, s, m, r, w, b: layer_grads(g, x, w),
    DY,
    X,
    [8],
    MEAN,
    RSTD,
    G,
    ZERO,
    dtypes=ONE,
)
add(
    "npu_layernorm_grad",
    lambda g, x, s, m, r, w, b: layer_grads(g, x, torch.ones(8).double()),
    DY,
    X,
    [8],
    MEAN,
    RSTD,
    None,
    None,
    label="plain",
    dtypes=ONE,
)


def add_layer_grads(dy, x1, x2, rstd, mean, gamma, dsum):
    dz, dgamma, dbeta = layer_grads(dy, x1 + x2, gamma)
    dz = dz if dsum is None else dz + dsum
    return dz, dz, dgamma, dbeta


_, M2, R2 = layer(X + X2, G, ZERO)
add("npu_add_layer_norm_backward", add_layer_grads, DY, X, X2, R2, M2, G, None, dtypes=ONE)
add(
    "npu_add_layer_norm_backward",
    add_layer_grads,
    DY,
    X,
    X2,
    R2,
    M2,
    G,
    rand(2, 3, 8),
    label="sum",
    dtypes=ONE,
)


def deep_grads(dy, x, gx, gamma, mean, rstd, alpha=0.3):
    dz, dgamma, dbeta = layer_grads(dy, alpha * x + gx, gamma)
    return dz * alpha, dz, dbeta, dgamma


_, M3, R3 = layer(0.5 * X + X2, G, ZERO)
add("npu_deep_norm_backward", deep_grads, DY, X, X2, G, M3, R3, 0.5, dtypes=ONE)

IMAGE, IW, IB, IG = rand(2, 4, 3, 3), rand(4), rand(4), rand(2, 4, 3, 3)


def swish_grads(grad, x, groups, w, b, mean, rstd, mask, scale=1.0):
    leaves = [t.clone().requires_grad_() for t in (x, w, b)]
    y = F.group_norm(leaves[0], groups, leaves[1], leaves[2])
    grads = torch.autograd.grad(y * torch.sigmoid(scale * y), leaves, grad)
    return tuple(g if m else g.new_empty(0) for g, m in zip(grads, mask))


rows = IMAGE.reshape(2, 2, -1)
IM, IR = rows.mean(-1), 1 / torch.sqrt(rows.var(-1, unbiased=False) + 1e-5)
for mask in ([True] * 3, [True, False, True]):
    add(
        "npu_group_norm_swish_grad",
        swish_grads,
        IG,
        IMAGE,
        2,
        IW,
        IB,
        IM,
        IR,
        mask,
        1.5,
        label=str(sum(mask)),
        dtypes=ONE,
    )


# ---- losses
def ce_grads(
    grad,
    log_prob,
    target,
    weight=None,
    *_,
    reduction="mean",
    ignore_index=-100,
    label_smoothing=0.0,
):
    x = log_prob.clone().requires_grad_()
    loss = F.cross_entropy(
        x,
        target,
        weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    return torch.autograd.grad(loss, x, grad if reduction == "none" else grad[0])[0]


LOGP, TARGET = torch.log_softmax(rand(5, 4), -1), torch.tensor([0, 3, 1, 1, 2])
C = "npu_cross_entropy_loss_backward"
add(C, ce_grads, rand(1), LOGP, TARGET, dtypes=ONE)
add(
    C,
    ce_grads,
    rand(1),
    LOGP,
    TARGET,
    rand(4, low=0.5, high=1.5),
    label="weight",
    ignore_index=1,
    dtypes=ONE,
)
add(C, ce_grads, rand(5), LOGP, TARGET, label="none", reduction="none", dtypes=ONE)
# Padding as programs mark it: the default of ignore_index.
PADDED = torch.tensor([0, -100, 1, 1, -100])
add(C, ce_grads, rand(1), LOGP, PADDED, label="padded", dtypes=ONE)
add(
    C,
    ce_grads,
    rand(1),
    LOGP,
    TARGET,
    label="smooth",
    reduction="sum",
    label_smoothing=0.25,
    dtypes=ONE,
)


def of_loss(loss):
    def call(grad, x, target, *rest, **kwargs):
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(loss(leaf, target, *rest, **kwargs), leaf, grad)[0]

    return call


NAMES = ("none", "mean", "sum")
bce = of_loss(
    lambda x, t, w, p, r: F.binary_cross_entropy_with_logits(
        x, t, w, pos_weight=p, reduction=NAMES[r]
    )
)
for r in range(3):
    g = rand(3, 4) if r == 0 else rand(1)[0]
    add(
        "npu_binary_cross_entropy_with_logits_backward",
        bce,
        g,
        rand(3, 4),
        rand(3, 4, low=0, high=1),
        rand(3, 4),
        rand(4),
        r,
        label=NAMES[r],
        dtypes=ONE,
    )
    kl = of_loss(
        lambda x, t, r=1, log_target=False: F.kl_div(
            x, t, reduction=NAMES[r], log_target=log_target
        )
    )
    klt = of_loss(
        lambda t, x, r=1, log_target=False: F.kl_div(
            x, t, reduction=NAMES[r], log_target=log_target
        )
    )
    swapped = lambda g, x, t, r=1, log_target=False, klt=klt: klt(g, t, x, r, log_target=log_target)  # noqa: E731
    for log in (False, True):
        add(
            "kl_div_backward",
            kl,
            g,
            rand(3, 4),
            rand(3, 4, low=0.125, high=1),
            r,
            log_target=log,
            label=f"{r}-{log}",
            dtypes=ONE,
        )
        add(
            "kl_div_target_backward",
            swapped,
            g,
            rand(3, 4),
            rand(3, 4, low=0.125, high=1),
            r,
            log_target=log,
            label=f"{r}-{log}",
            dtypes=ONE,
        )
add(
    "npu_renorm_backward",
    through(lambda x, p, d, m: torch.renorm(x, p, d, m), (0,)),
    rand(3, 5),
    rand(3, 5),
    2.0,
    0,
    1.5,
    dtypes=ONE,
)
add(
    "npu_renorm_backward",
    through(lambda x, p, d, m: torch.renorm(x, p, d, m), (0,)),
    rand(3, 5),
    rand(3, 5),
    1.0,
    1,
    2.0,
    label="one",
    dtypes=ONE,
)
