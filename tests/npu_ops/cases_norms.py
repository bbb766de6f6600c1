# SPDX-License-Identifier: Apache-2.0
"""Norms and rotary embeddings."""

import torch
from table import add, int8, ints, rand, through

ONE = (torch.float32,)


# ---- norms
def rms(x, gamma, epsilon=1e-6, plus=0.0):
    dims = tuple(range(x.dim() - gamma.dim(), x.dim()))
    rstd = 1 / torch.sqrt((x**2).mean(dims, keepdim=True) + epsilon)
    return x * rstd * (gamma + plus), rstd.detach()


add("npu_rms_norm", rms, rand(3, 5, 8), rand(8), grad=(0, 1))
add("npu_rms_norm", rms, rand(2, 3, 4, 8), rand(4, 8), 1e-3, label="two-dims", grad=(0, 1))
add(
    "npu_rms_norm",
    rms,
    rand(3, 8),
    rand(8),
    label="wide-gamma",
    keep=(1,),
    dtypes=(torch.float16, torch.bfloat16),
)
add("npu_rms_norm", rms, rand(0, 8), rand(8), label="empty", dtypes=ONE)
add(
    "npu_gemma_rms_norm",
    lambda x, g, e=1e-6: rms(x, g, e, 1.0),
    rand(3, 5, 8),
    rand(8),
    grad=(0, 1),
)


def rms_backward(dy, x, gamma, rstd):
    x, gamma = x.clone().requires_grad_(), gamma.clone().requires_grad_()
    return torch.autograd.grad(rms(x, gamma)[0], (x, gamma), dy)


_x, _g = rand(3, 5, 8), rand(8)
add("npu_rms_norm_backward", rms_backward, rand(3, 5, 8), _x, _g, rms(_x, _g)[1], dtypes=ONE)


def add_rms(x1, x2, gamma, epsilon=1e-6):
    y, rstd = rms(x1 + x2, gamma, epsilon)
    return y, rstd, x1 + x2


pair = (rand(4, 8, low=-1, high=1), rand(4, 8, low=-1, high=1), rand(8))
add("npu_add_rms_norm", add_rms, *pair, grad=(0, 1, 2))
add("npu_add_rms_norm_cast", lambda *a: (add_rms(*a)[0], *add_rms(*a)), *pair)
add("npu_add_rms_norm_v2", lambda *a: add_rms(*a)[1], *pair)
add(
    "npu_add_rms_norm_v2_functional",
    lambda *a: (add_rms(*a)[1], add_rms(*a)[0], add_rms(*a)[2]),
    *pair,
)


def add_rms_quant(x1, x2, gamma, s1, z1, beta=None, s2=None, z2=None, *, div_mode=True):
    y = rms(x1 + x2, gamma)[0] + (0 if beta is None else beta)

    def q(s, z):
        return int8((y / s if div_mode else y * s) + (0 if z is None else z))

    return q(s1, z1), torch.zeros(y.shape, dtype=torch.int8) if s2 is None else q(s2, z2), x1 + x2


scale8 = rand(8, low=0.02, high=0.1).clamp(min=0.03)
add("npu_add_rms_norm_quant", add_rms_quant, *pair, scale8, rand(8), label="div", dtypes=ONE)
add(
    "npu_add_rms_norm_quant",
    add_rms_quant,
    *pair,
    1 / scale8,
    None,
    rand(8),
    1 / scale8,
    rand(8),
    div_mode=False,
    label="mul",
    dtypes=ONE,
    tolerance=1.0,
)


def row_quant(y, top=127.0):
    scale = y.abs().amax(-1, keepdim=True) / top
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def add_rms_dynamic(x1, x2, gamma, *, smooth_scale1=None, smooth_scale2=None, beta=None):
    y = rms(x1 + x2, gamma)[0] + (0 if beta is None else beta)
    y1 = y if smooth_scale1 is None else y * smooth_scale1
    none8, none = torch.empty(0, dtype=torch.int8), torch.empty(0, dtype=torch.float64)
    first = int8(y1 / row_quant(y1)), row_quant(y1)[..., 0]
    if smooth_scale2 is None:
        return first[0], none8, x1 + x2, first[1], none
    y2 = y * smooth_scale2
    return first[0], int8(y2 / row_quant(y2)), x1 + x2, first[1], row_quant(y2)[..., 0]


add("npu_add_rms_norm_dynamic_quant", add_rms_dynamic, *pair, label="one", dtypes=ONE)
add(
    "npu_add_rms_norm_dynamic_quant",
    add_rms_dynamic,
    *pair,
    smooth_scale1=rand(8),
    smooth_scale2=rand(8),
    beta=rand(8),
    label="two",
    dtypes=ONE,
)
add(
    "npu_rms_norm_quant",
    lambda x, g, b, s, o: int8((rms(x, g)[0] + b) * s + o),
    rand(3, 8),
    rand(8),
    rand(8),
    rand(1) * 10,
    rand(1),
    dtypes=ONE,
)


def layer(z, dims, gamma, beta, eps):
    mean = z.mean(dims, keepdim=True)
    rstd = 1 / torch.sqrt(((z - mean) ** 2).mean(dims, keepdim=True) + eps)
    return (z - mean) * rstd * gamma + beta, mean.detach(), rstd.detach()


def deep(x, gx, beta, gamma, alpha=0.3, epsilon=1e-6):
    y, mean, rstd = layer(alpha * x + gx, (-1,), gamma, beta, epsilon)
    return mean, rstd, y


add("npu_deep_norm", deep, rand(3, 8), rand(3, 8), rand(8), rand(8), grad=(0, 1, 2, 3))


def add_layer(x1, x2, gamma, beta, epsilon=1e-5, additional_output=False):
    y, mean, rstd = layer(x1 + x2, (-1,), gamma, beta, epsilon)
    return y, mean, rstd, x1 + x2


add(
    "npu_add_layer_norm",
    add_layer,
    rand(3, 8, low=-1, high=1),
    rand(3, 8, low=-1, high=1),
    rand(8),
    rand(8),
    1e-5,
    True,
    grad=(0, 1, 2, 3),
)


def groups(x, n, w, b, eps):
    z = x.reshape(x.shape[0], n, -1)
    mean, var = z.mean(-1), z.var(-1, unbiased=False)
    y = ((z - mean[..., None]) / torch.sqrt(var + eps)[..., None]).reshape(x.shape)
    shape = (1, -1, *[1] * (x.dim() - 2))
    y = y if w is None else y * w.reshape(shape) + b.reshape(shape)
    return y, mean.detach(), (1 / torch.sqrt(var + eps)).detach()


def silu_groups(x, w, b, group, eps=1e-5):
    y, mean, rstd = groups(x, group, w, b, eps)
    return y / (1 + torch.exp(-y)), mean, rstd


def swish_groups(x, n, w, b, eps=1e-5, swish_scale=1.0):
    y, mean, rstd = groups(x, n, w, b, eps)
    return y / (1 + torch.exp(-swish_scale * y)), mean, rstd


add("npu_group_norm_silu", silu_groups, rand(2, 6, 4, 3), rand(6), rand(6), 3, grad=(0, 1, 2))
add("npu_group_norm_silu", silu_groups, rand(2, 6, 5), None, None, 2, label="plain")
add(
    "npu_group_norm_swish",
    swish_groups,
    rand(2, 6, 4),
    3,
    rand(6),
    rand(6),
    1e-5,
    1.7,
    grad=(0, 2, 3),
)
add(
    "npu_layer_norm_eval",
    lambda x, s, w=None, b=None, eps=1e-5: layer(
        x, (-1,), 1 if w is None else w, 0 if b is None else b, eps
    )[0],
    rand(3, 8),
    [8],
    rand(8),
    rand(8),
)
add(
    "npu_layer_norm_eval",
    lambda x, s: layer(x, (-1,), 1, 0, 1e-5)[0],
    rand(3, 8),
    [8],
    label="plain",
)


# ---- rotary
def rotated(x, cos, sin, mode="half"):
    d = x.shape[-1]
    y = torch.empty_like(x)
    if mode == "interleave-half":
        x = torch.cat((x[..., 0::2], x[..., 1::2]), -1)
        mode = "half"
    out = []
    for i in range(d):
        if mode == "half":
            other = -x[..., i + d // 2] if i < d // 2 else x[..., i - d // 2]
        elif mode == "interleave":
            other = -x[..., i + 1] if i % 2 == 0 else x[..., i - 1]
        else:
            q = d // 4
            other = -x[..., i + q] if (i // q) % 2 == 0 else x[..., i - q]
        out.append(x[..., i] * cos[..., i] + other * sin[..., i])
    del y
    return torch.stack(out, -1)


turn = (rand(2, 5, 3, 8), rand(1, 5, 1, 8), rand(1, 5, 1, 8))
for mode in ("half", "interleave", "quarter", "interleave-half"):
    add("npu_rotary_mul", rotated, *turn, mode, label=mode, grad=(0, 1, 2))
    add(
        "npu_rotary_mul_backward",
        through(rotated, (0, 1, 2)),
        rand(2, 5, 3, 8),
        *turn,
        mode,
        label=mode,
        dtypes=ONE,
    )
add(
    "npu_rotary_mul",
    lambda x, c, s, m, r: x * c + (x @ r) * s,
    *turn,
    "half",
    rand(8, 8),
    label="matrix",
)


def both(q, k, cos, sin, layout="BSND", mode="half"):
    return rotated(q, cos, sin, mode), rotated(k, cos, sin, mode)


add(
    "npu_apply_rotary_pos_emb",
    both,
    rand(2, 5, 3, 8),
    rand(2, 5, 1, 8),
    rand(2, 5, 1, 8),
    rand(2, 5, 1, 8),
)
add(
    "npu_interleave_rope",
    lambda x, c, s: rotated(x, c, s, "interleave-half"),
    rand(2, 3, 5, 8),
    rand(2, 1, 5, 8),
    rand(2, 1, 5, 8),
)


def mrope(
    positions, q, k, cache, head, *, mrope_section=None, rotary_mode="half", cache_mode="default"
):
    half = cache.shape[1] // 2
    results = []
    for x in (q, k):
        y = x.clone()
        for t in range(x.shape[0]):
            cos, sin = (
                torch.empty(half, dtype=torch.float64),
                torch.empty(half, dtype=torch.float64),
            )
            for c in range(half):
                row = 0
                if positions.dim() == 2 and cache_mode == "default":
                    row = sum(c >= sum(mrope_section[: i + 1]) for i in range(len(mrope_section)))
                elif positions.dim() == 2:
                    row = c % 3 if c % 3 and c < mrope_section[c % 3] * 3 else 0
                p = positions[row, t] if positions.dim() == 2 else positions[t]
                cos[c], sin[c] = cache[p, c], cache[p, half + c]
            for h in range(x.shape[1] // head):
                for c in range(half):
                    a, b = (c, c + half) if rotary_mode == "half" else (2 * c, 2 * c + 1)
                    a, b = h * head + a, h * head + b
                    y[t, a] = x[t, a] * cos[c] - x[t, b] * sin[c]
                    y[t, b] = x[t, b] * cos[c] + x[t, a] * sin[c]
        results.append(y)
    return tuple(results)


table = (rand(4, 32), rand(4, 16), rand(10, 12), 16)
add("npu_mrope", mrope, ints(0, 10, 4), *table, label="half")
add("npu_mrope", mrope, ints(0, 10, 4), *table, label="interleave", rotary_mode="interleave")
add("npu_mrope", mrope, ints(0, 10, 4), *table, label="interleaved", rotary_mode="interleaved")
add("npu_mrope", mrope, ints(0, 10, 4), *table, label="plain", mrope_section=[0, 0, 0])
add("npu_mrope", mrope, ints(0, 10, 3, 4), *table, label="sections", mrope_section=[2, 2, 2])
add("npu_mrope", mrope, ints(0, 10, 4, 4), *table, label="four", mrope_section=[1, 2, 2, 1])
add(
    "npu_mrope",
    mrope,
    ints(0, 10, 3, 4),
    *table,
    label="every-third",
    mrope_section=[2, 2, 2],
    cache_mode="interleave",
)
