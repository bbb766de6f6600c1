# SPDX-License-Identifier: Apache-2.0
"""An optimiser's step, sampling from logits, strided sums; random and in-place ones: test_drawn.py."""

import math

import torch
from table import add, rand

ONE = (torch.float32,)


def bert_adam(
    lr, beta1, beta2, epsilon, grad, max_grad_norm, global_grad_norm, weight_decay, step_size=None,
    adam_mode=0, *, var, m, v,
):  # fmt: skip
    clips = adam_mode == 0 and max_grad_norm > 0 and global_grad_norm > max_grad_norm
    outs = []
    for w, p, q, g in zip(*(x.flatten().tolist() for x in (var, m, v, grad)), strict=True):
        g = g * max_grad_norm / global_grad_norm if clips else g
        p = beta1 * p + (1 - beta1) * g
        q = beta2 * q + (1 - beta2) * g * g
        ratio = p / (math.sqrt(q) + epsilon)
        if adam_mode == 0:
            w -= lr * (ratio + weight_decay * w)
        else:
            w -= (lr if step_size is None else step_size) * ratio + lr * weight_decay * w
        outs.append((w, p, q))
    table = torch.tensor(outs, dtype=torch.float64).reshape(-1, 3)
    return tuple(table[:, n].reshape(var.shape) for n in range(3))


for label, size, scalars, options in (
    ("plain", (3, 5), (0.1, 0.9, 0.99, 1e-6), (-1.0, 0.0, 0.01)),
    ("clipped", (7,), (0.1, 0.9, 0.99, 1e-6), (1.0, 4.0, 0.0)),
    ("under-the-norm", (7,), (0.1, 0.9, 0.99, 1e-6), (4.0, 1.0, 0.1)),
    ("mbart", (2, 3), (0.1, 0.9, 0.99, 1e-6), (1.0, 4.0, 0.1, None, 1)),
    ("mbart-step", (2, 3), (0.1, 0.9, 0.99, 1e-6), (1.0, 4.0, 0.1, 0.05, 1)),
    ("step-without-mbart", (4,), (0.1, 0.9, 0.99, 1e-6), (1.0, 0.5, 0.1, 0.05, 0)),
    ("one", (1,), (0.1, 0.9, 0.99, 1e-6), (-1.0, 0.0, 0.0)),
    ("none", (0,), (0.1, 0.9, 0.99, 1e-6), (-1.0, 0.0, 0.0)),
):
    add("npu_bert_apply_adam.out", bert_adam, *scalars, rand(*size), *options, label=label,
        var=rand(*size), m=rand(*size), v=rand(*size, low=0.5, high=2))  # fmt: skip


# ---- sampling


def kept_places(row, k, p, min_p, k_max, is_logits):
    """Candidates in the order they are looked at, with their probabilities."""
    values, v = row.tolist(), len(row)
    use_k, use_p = 1 <= k <= min((k_max + 7) // 8 * 8, 1024, v), p < 1
    order = list(range(v))
    if use_k or use_p:
        order.sort(key=lambda place: (-values[place], place))
    order = order[:k] if use_k else order
    probs = [values[place] for place in order]
    if is_logits:
        top = max(probs)
        raised = [math.exp(x - top) for x in probs]
        probs = [x / sum(raised) for x in raised]
    if use_p:
        total, count = 0.0, 0
        while count < len(probs) and (count == 0 or total < p):
            total += probs[count]
            count += 1
        order, probs = order[:count], probs[:count]
    if min_p is not None and min_p > 0:
        least = max(probs) * min(min_p, 1.0)
        chosen = [n for n, x in enumerate(probs) if x >= least]
        chosen = [probs.index(max(probs))] if min_p >= 1 else chosen
        order, probs = [order[n] for n in chosen], [probs[n] for n in chosen]
    return order, probs


def sample(
    logits, top_k, top_p, q=None, eps=1e-8, is_need_logits=False, top_k_guess=32, min_ps=None,
    ks_max=1024, input_is_logits=True, post_sample="qSample",
):  # fmt: skip
    rows = []
    kept = torch.full_like(logits, -math.inf if input_is_logits else 0.0)
    for b in range(len(logits)):
        min_p = None if min_ps is None else float(min_ps[b])
        order, weights = kept_places(
            logits[b], int(top_k[b]), float(top_p[b]), min_p, ks_max, input_is_logits
        )
        kept[b, order] = logits[b, order]
        if q is not None and post_sample == "qSample":
            weights = [w / (abs(float(q[b, n])) + eps) for n, w in enumerate(weights)]
        rows.append(order[max(range(len(order)), key=lambda n: (weights[n], -n))])
    return torch.tensor(rows, dtype=torch.int64), kept if is_need_logits else None


def logits_of(rows, width):
    """Different numbers in a row, so that one order is right, in every dtype."""
    order = torch.stack([
        torch.randperm(width, generator=torch.Generator().manual_seed(n)) for n in range(rows)
    ]) if rows else torch.zeros(0, width)  # fmt: skip
    return order.double() / 8 - 1


def shares(rows, width):
    table = torch.exp(logits_of(rows, width))
    return table / table.sum(-1, keepdim=True)


K = torch.tensor([3, 5, 1, 0, 20], dtype=torch.int32)
P = torch.tensor([0.9, 0.55, 0.5, 0.7, 1.0], dtype=torch.float64)
Q = rand(5, 24, low=-1, high=1)
for label, k, p, options in (
    ("k-and-p", K, P, {}),
    ("k", K, torch.ones(5).double(), {}),
    ("p", torch.zeros(5, dtype=torch.int32), P, {}),
    ("neither", torch.full((5,), 9999, dtype=torch.int32), torch.ones(5).double(), {}),
    ("p-zero", torch.zeros(5, dtype=torch.int32), torch.zeros(5).double(), {}),
    ("k-above-ks-max", K, torch.ones(5).double(), {"ks_max": 8}),
    ("min-p", K, P, {"min_ps": torch.tensor([0.0, 0.5, 0.25, 1.0, 0.75]).double()}),
    ("q", K, P, {"q": Q}),
    ("q-neither", torch.zeros(5, dtype=torch.int32), torch.ones(5).double(), {"q": Q}),
    ("no-post-sample", K, P, {"q": Q, "post_sample": "None"}),
):
    add("npu_top_k_top_p_sample", sample, logits_of(5, 24), k, p, label=label, is_need_logits=True,
        dtypes=ONE if "min_ps" in options else (torch.float32, torch.float16), **options)  # fmt: skip
add("npu_top_k_top_p_sample", sample, shares(5, 24), K, P, label="shares", is_need_logits=True,
    input_is_logits=False, dtypes=ONE)  # fmt: skip
add("npu_top_k_top_p_sample", sample, logits_of(5, 24), K, P, label="without-logits")
add(
    "npu_top_k_top_p_sample",
    sample,
    logits_of(1, 1),
    K[:1],
    P[:1],
    label="one",
    is_need_logits=True,
)
TIES = torch.tensor([[1.0, 2, 2, 0, 2], [0, 0, 0, 0, 0]]).double()
add("npu_top_k_top_p_sample", sample, TIES, torch.tensor([2, 3], dtype=torch.int32),
    torch.ones(2).double(), label="ties", is_need_logits=True)  # fmt: skip


# ---- sums of channels


def stride_add(x1, x2, offset1, offset2, c1_len):
    out = torch.zeros(x1.shape[0], 16 * c1_len, *x1.shape[2:], dtype=torch.float64)
    for c in range(16 * c1_len):
        for x, offset in ((x1, offset1), (x2, offset2)):
            if 16 * offset + c < x.shape[1]:
                out[:, c] += x[:, 16 * offset + c]
    return out


for label, first, second, offsets in (
    ("plain", (2, 32, 2, 3), (2, 32, 2, 3), (0, 0, 1)),
    ("offsets", (1, 48, 2, 2), (1, 48, 2, 2), (1, 2, 1)),
    ("missing", (2, 20, 3, 1), (2, 40, 3, 1), (1, 1, 2)),
    ("one", (1, 1, 1, 1), (1, 1, 1, 1), (0, 0, 1)),
    ("no-rows", (0, 16, 2, 2), (0, 16, 2, 2), (0, 0, 1)),
):
    add("npu_stride_add", stride_add, rand(*first), rand(*second), *offsets, label=label)
