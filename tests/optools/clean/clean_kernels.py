# SPDX-License-Identifier: Apache-2.0
"""Right kernels of another make: other summation orders, tiles, formulas and intermediate dtypes.

Each is written plainly, on tensors in host memory, and stands in for a device's own. A table row:
the operator of aten, its kernel, and the arguments of a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional as F

LOG2E = 1.4426950408889634
INVERSE_ROOT2 = 0.5**0.5


@dataclass
class Kernel:
    op: str
    function: Callable
    arguments: Callable[[torch.dtype], tuple]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.bfloat16, torch.float16)


KERNELS: list[Kernel] = []
FLOAT = (torch.float32,)


def kernel(op: str, arguments: Callable, dtypes: tuple = Kernel.dtypes) -> Callable:
    def add(function: Callable) -> Callable:
        KERNELS.append(Kernel(op, function, arguments, dtypes))
        return function

    return add


def numbers(*shape: int, seed: int = 0, positive: bool = False) -> Callable:
    """Of a dtype; a few of them large, so that tails are met."""

    def make(dtype: torch.dtype) -> torch.Tensor:
        x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
        x.view(-1)[:: 1 + x.numel() // 7] *= 6
        return (x.abs() + 0.01 if positive else x).to(dtype)

    return make


def given(*makers: object) -> Callable:
    """The arguments of a call, those that depend on the dtype made."""
    return lambda dtype: tuple(m(dtype) if callable(m) else m for m in makers)


def wide(x: torch.Tensor) -> torch.Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def tiles(length: int, size: int = 7) -> list[slice]:
    """From the end to the beginning."""
    starts = range(0, length, size)
    return [slice(at, min(at + size, length)) for at in reversed(starts)]


def added(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """A sum in tiles, last first, each term by term."""
    x = wide(x).movedim(dim, 0)
    total = torch.zeros(x.shape[1:])
    for tile in tiles(len(x)):
        part = torch.zeros(x.shape[1:])
        for row in x[tile]:
            part = part + row
        total = total + part
    return total


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Split along k, outer products of 5 terms."""
    a, b = wide(a), wide(b)
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for tile in tiles(a.shape[-1], 5):
        total = total + a[..., tile] @ b[..., tile, :]
    return total


def inner(x: torch.Tensor, dims: int) -> torch.Tensor:
    return x.flatten(-dims) if dims > 1 else x


# ---- elementwise -----------------------------------------------------------------------------
X, Y, P = numbers(9, 65), numbers(9, 65, seed=1), numbers(9, 65, seed=2, positive=True)


def unary(op: str, x: Callable = X, more: tuple = ()) -> Callable:
    return kernel(op, given(x, *more))


def in_float(function: Callable) -> Callable:
    """Computes in float32, rounds once."""

    def run(x, *rest, **named):
        rest = [wide(r) if isinstance(r, torch.Tensor) else r for r in rest]
        return function(wide(x), *rest, **named).to(x.dtype)

    return run


unary("exp")(in_float(lambda x: torch.exp2(x * LOG2E)))
unary("log", P)(in_float(lambda x: torch.log2(x) * (1 / LOG2E)))
unary("rsqrt", P)(in_float(lambda x: 1 / x.sqrt()))
unary("reciprocal", P)(in_float(lambda x: torch.exp2(-torch.log2(x).double()).float()))
unary("silu")(in_float(lambda x: x * (1 / (1 + torch.exp(-x)))))
unary("sigmoid")(
    in_float(lambda x: torch.where(x < 0, x.exp() / (1 + x.exp()), 1 / (1 + (-x).exp())))
)
unary("tanh")(in_float(lambda x: torch.expm1(2 * x) / (torch.expm1(2 * x) + 2)))
unary("mish")(in_float(lambda x: x * torch.tanh(x.clamp(min=0) + torch.log1p(torch.exp(-x.abs())))))
unary("hardswish")(in_float(lambda x: x * (x + 3).clamp(0, 6) * (1 / 6)))
unary("expm1")(in_float(lambda x: torch.tanh(x / 2) * (torch.exp(x) + 1)))
unary("square")(in_float(lambda x: (x.double() ** 2).float()))


@unary("gelu")
@in_float
def gelu(x, approximate="none"):
    return 0.5 * x * torch.erfc(-x * INVERSE_ROOT2)


@kernel("softplus", given(X, 2.0, 15.0))
@in_float
def softplus(x, beta=1, threshold=20):
    z = x * beta
    soft = z.clamp(min=0) + torch.log1p(torch.exp(-z.abs()))
    return torch.where(z > threshold, x, soft / beta)


@kernel("elu", given(X))
@in_float
def elu(x, alpha=1, scale=1, input_scale=1):
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))


kernel("div.Tensor", given(X, P))(in_float(lambda a, b: a * (1 / b)))
kernel("pow.Tensor_Tensor", given(P, Y), FLOAT)(
    in_float(lambda a, b: torch.exp2(b * torch.log2(a)))
)
kernel("sub.Tensor", given(X, Y))(in_float(lambda a, b, alpha=1: -(b * alpha - a)))
kernel("mul.Tensor", given(X, Y))(in_float(lambda a, b: (b.double() * a.double()).float()))
kernel("addcmul", given(X, Y, P))(
    in_float(lambda a, b, c, value=1: (a.double() + value * b.double() * c.double()).float())
)
kernel("addcdiv", given(X, Y, P))(in_float(lambda a, b, c, value=1: a + (b * value) * (1 / c)))
kernel("lerp.Scalar", given(X, Y, 0.3))(in_float(lambda a, b, w: a * (1 - w) + b * w))


@kernel("silu_backward", given(X, Y))
@in_float
def silu_backward(g, x):
    s = torch.where(x < 0, x.exp() / (1 + x.exp()), 1 / (1 + (-x).exp()))
    return g * (s + x * (s * (1 - s)))


@kernel("gelu_backward", given(X, Y))
@in_float
def gelu_backward(g, x, approximate="none"):
    density = torch.exp2(x * x * (-0.5 * LOG2E)) * (1 / math.sqrt(2 * math.pi))
    return g * (0.5 * torch.erfc(-x * INVERSE_ROOT2) + x * density)


kernel("tanh_backward", given(X, lambda t: torch.tanh(Y(t))))(
    in_float(lambda g, y: g * (1 - y) * (1 + y))
)
kernel("sigmoid_backward", given(X, lambda t: torch.sigmoid(Y(t))))(
    in_float(lambda g, y: (g - g * y) * y)
)


# ---- reductions ------------------------------------------------------------------------------
@kernel("sum.dim_IntList", given(numbers(6, 300), [1]))
def sum_(x, dim, keepdim=False, *, dtype=None):
    return added(x, dim[0]).to(x.dtype)


@kernel("mean.dim", given(numbers(6, 300), [1]))
def mean(x, dim, keepdim=False, *, dtype=None):
    return (added(x, dim[0]) * (1 / x.shape[dim[0]])).to(x.dtype)


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and sum of squares around it of the last dimension, tile by tile (Chan)."""
    x = wide(x)
    count, middle, squares = 0, torch.zeros(x.shape[:-1]), torch.zeros(x.shape[:-1])
    for tile in tiles(x.shape[-1], 16):
        part = x[..., tile]
        n = part.shape[-1]
        own = added(part) / n
        around = added((part - own[..., None]) ** 2)
        gap = own - middle
        middle = middle + gap * (n / (count + n))
        squares = squares + around + gap * gap * (count * n / (count + n))
        count += n
    return middle, squares


@kernel("var.correction", given(numbers(6, 300), [1]))
def var(x, dim=None, *, correction=None, keepdim=False):
    correction = 1 if correction is None else correction
    return (moments(x)[1] / (x.shape[1] - correction)).to(x.dtype)


@kernel("linalg_vector_norm", given(numbers(6, 300), 2, [1]))
def norm(x, order=2, dim=None, keepdim=False, *, dtype=None):
    return added(wide(x) ** 2, dim[0]).sqrt().to(x.dtype)


@kernel("cumsum", given(numbers(6, 200), 1))
def cumsum(x, dim, *, dtype=None):
    """Tiles scanned apart, then what came before is added to each."""
    pieces, before = [], torch.zeros(x.shape[0])
    for tile in reversed(tiles(x.shape[1], 13)):
        piece = wide(x[:, tile]).cumsum(1)
        pieces.append(piece + before[:, None])
        before = before + piece[:, -1]
    return torch.cat(pieces, 1).to(x.dtype)


def online(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Largest value and sum of exp below it, in one pass over tiles."""
    x = wide(x)
    top, total = torch.full(x.shape[:-1], -math.inf), torch.zeros(x.shape[:-1])
    for tile in tiles(x.shape[-1], 16):
        part = x[..., tile]
        higher = torch.maximum(top, part.amax(-1))
        total = total * torch.exp(top - higher) + added(torch.exp(part - higher[..., None]))
        top = higher
    return top, total


@kernel("_softmax", given(numbers(6, 100), 1, False))
def softmax(x, dim, half_to_float):
    top, total = online(x)
    y = torch.exp2((wide(x) - top[:, None]) * LOG2E) * (1 / total)[:, None]
    return y.to(x.dtype)


@kernel("_log_softmax", given(numbers(6, 100), 1, False))
def log_softmax(x, dim, half_to_float):
    """The largest first: less what is left of it, a near certain element keeps its digits."""
    top, total = online(x)
    return ((wide(x) - top[:, None]) - (torch.log2(total) / LOG2E)[:, None]).to(x.dtype)


@kernel("logsumexp", given(numbers(6, 100), [1]))
def logsumexp(x, dim, keepdim=False):
    top, total = online(x)
    return (top + total.log()).to(x.dtype)


@kernel("_softmax_backward_data", given(numbers(6, 100), lambda t: Z(t).softmax(1), 1, lambda t: t))
def softmax_backward(g, y, dim, dtype):
    w = wide(g) * wide(y)
    return (w - wide(y) * added(w)[:, None]).to(y.dtype)


@kernel(
    "_log_softmax_backward_data",
    given(numbers(6, 100), lambda t: Z(t).log_softmax(1), 1, lambda t: t),
)
def log_softmax_backward(g, y, dim, dtype):
    return (wide(g) - torch.exp2(wide(y) * LOG2E) * added(g)[:, None]).to(y.dtype)


Z = numbers(6, 100, seed=4)


# ---- products --------------------------------------------------------------------------------
A, B = numbers(24, 130), numbers(130, 20, seed=1)
kernel("mm", given(A, B))(lambda a, b: product(a, b).to(a.dtype))
kernel("bmm", given(numbers(3, 8, 70), numbers(3, 70, 9, seed=1)))(
    lambda a, b: product(a, b).to(a.dtype)
)
kernel("mv", given(A, numbers(130, seed=2)))(lambda a, b: added(wide(a) * wide(b)).to(a.dtype))
kernel("dot", given(numbers(300), numbers(300, seed=2)))(
    lambda a, b: added(wide(a) * wide(b)).to(a.dtype)
)


@kernel("addmm", given(numbers(20, seed=3), A, B))
def addmm(c, a, b, *, beta=1, alpha=1):
    return (product(wide(a) * alpha, b) + wide(c) * beta).to(a.dtype)


@kernel("baddbmm", given(numbers(3, 8, 9, seed=3), numbers(3, 8, 70), numbers(3, 70, 9, seed=1)))
def baddbmm(c, a, b, *, beta=1, alpha=1):
    return (wide(c) * beta + product(a, b) * alpha).to(a.dtype)


def columns(x: torch.Tensor, w: torch.Tensor, padding: int) -> torch.Tensor:
    return F.unfold(wide(x), w.shape[2:], padding=padding)


@kernel(
    "convolution_overrideable",
    given(
        numbers(2, 3, 9, 9), numbers(4, 3, 3, 3, seed=1), numbers(4, seed=2),
        [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
    ),
)  # fmt: skip
def convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups):
    rows = product(w.flatten(1), columns(x, w, padding[0])) + wide(b)[:, None]
    return rows.view(x.shape[0], w.shape[0], *x.shape[2:]).to(x.dtype)


# ---- normalisations --------------------------------------------------------------------------
@kernel(
    "native_layer_norm", given(numbers(6, 96), [96], numbers(96, seed=1), numbers(96, seed=2), 1e-5)
)
def layer_norm(x, shape, weight, bias, eps):
    middle, squares = moments(x)
    rstd = (squares / x.shape[-1] + eps).rsqrt()
    scale = rstd[:, None] * wide(weight)
    out = wide(x) * scale + (wide(bias) - middle[:, None] * scale)
    return out.to(x.dtype), middle[:, None], rstd[:, None]


def _layer_norm_arguments(dtype: torch.dtype) -> tuple:
    x, g, w = numbers(6, 96)(dtype), numbers(6, 96, seed=5)(dtype), numbers(96, seed=1)(dtype)
    _, middle, rstd = torch.native_layer_norm(x, [96], w, w, 1e-5)
    return g, x, [96], middle, rstd, w, w, [True, True, True]


@kernel("native_layer_norm_backward", _layer_norm_arguments)
def layer_norm_backward(g, x, shape, mean_, rstd, weight, bias, mask):
    hat = (wide(x) - wide(mean_)) * wide(rstd)
    scaled = wide(g) * wide(weight)
    n = x.shape[-1]
    gx = (scaled - added(scaled)[:, None] / n - hat * added(scaled * hat)[:, None] / n) * wide(rstd)
    return [t.to(x.dtype) for t in (gx, added(wide(g) * hat, 0), added(g, 0))]


@kernel(
    "native_group_norm",
    given(numbers(2, 8, 5, 5), numbers(8, seed=1), numbers(8, seed=2), 2, 8, 25, 4, 1e-5),
)
def group_norm(x, weight, bias, n, c, area, groups, eps):
    grouped = wide(x).reshape(n, groups, -1)
    middle, squares = moments(grouped)
    rstd = (squares / grouped.shape[-1] + eps).rsqrt()
    out = ((grouped - middle[..., None]) * rstd[..., None]).view(x.shape)
    out = out * wide(weight)[:, None, None] + wide(bias)[:, None, None]
    return [t.to(x.dtype) for t in (out, middle, rstd)]


@kernel(
    "native_batch_norm",
    given(numbers(4, 3, 6, 6), numbers(3, seed=1), numbers(3, seed=2), None, None, True, 0.1, 1e-5),
    FLOAT,
)
def batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps):
    middle, squares = moments(x.transpose(0, 1).flatten(1))
    rstd = (squares / (x.numel() // x.shape[1]) + eps).rsqrt()
    scale = rstd * weight
    out = x * scale[:, None, None] + (bias - middle * scale)[:, None, None]
    return out, middle, rstd


# ---- indices, pools, losses ------------------------------------------------------------------
@kernel("embedding_dense_backward", given(numbers(40, 8), torch.arange(40) % 7, 9, -1, False))
def embedding_backward(g, indices, count, padding, by_frequency):
    made = torch.zeros(count, g.shape[-1])
    for i in reversed(range(len(indices))):
        made[indices[i]] += wide(g[i])
    return made.to(g.dtype)


@kernel("avg_pool2d", given(numbers(2, 3, 8, 8), [2, 2], [2, 2]))
def avg_pool(x, size, stride=(), padding=0, ceil_mode=False, include=True, divisor=None):
    return ((wide(x)[..., 1::2, 1::2] + wide(x)[..., ::2, 1::2]
             + wide(x)[..., 1::2, ::2] + wide(x)[..., ::2, ::2]) / 4).to(x.dtype)  # fmt: skip


@kernel("mse_loss", given(numbers(500), numbers(500, seed=1), 1))
def mse(x, y, reduction=1):
    return (added((wide(x) - wide(y)) ** 2) / x.numel()).to(x.dtype)


@kernel(
    "binary_cross_entropy",
    given(lambda t: X(t).sigmoid(), lambda t: Y(t).sigmoid(), None, 0),
    FLOAT,
)
def bce(x, y, weight=None, reduction=1):
    return -(torch.log(x).clamp(min=-100) * y + torch.log1p(-x).clamp(min=-100) * (1 - y))


# ---- attention -------------------------------------------------------------------------------
def _qkv(dtype: torch.dtype) -> tuple:
    return tuple(numbers(2, 4 if i == 0 else 2, 40, 16, seed=i)(dtype) for i in range(3))


@kernel("_scaled_dot_product_fused_attention_overrideable", lambda t: (*_qkv(t), None, 0.0, True))
def flash(q, k, v, bias=None, dropout=0.0, causal=False, debug=False, *, scale=None):
    """Tiles of keys; P of a tile goes through the arguments' dtype into the second product."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    rows, scale = q.shape[2], scale or q.shape[-1] ** -0.5
    top = torch.full((*q.shape[:3], 1), -math.inf)
    total, out = torch.zeros_like(top), torch.zeros(q.shape)
    for first in range(0, k.shape[2], 16):
        s = wide(q) @ wide(k[:, :, first : first + 16]).mT * (scale * LOG2E)
        if causal:
            where = torch.arange(first, first + s.shape[-1])
            s = s.masked_fill(where > torch.arange(rows)[:, None], -math.inf)
        higher = torch.maximum(top, s.amax(-1, keepdim=True))
        p, fade = torch.exp2(s - higher), torch.exp2(top - higher)
        total = total * fade + p.sum(-1, keepdim=True)
        out = out * fade + wide(p.to(q.dtype)) @ wide(v[:, :, first : first + 16])
        top = higher
    sums = (top / LOG2E + total.log()).squeeze(-1).transpose(1, 2).contiguous().transpose(1, 2)
    zero = torch.zeros((), dtype=torch.int64)
    out = (out / total).to(q.dtype)
    return out, sums, None, None, rows, k.shape[2], zero, zero, None


def _gradient_arguments(dtype: torch.dtype) -> tuple:
    q, k, v = _qkv(dtype)
    out, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, True)
    g, zero = numbers(2, 4, 40, 16, seed=7)(dtype), torch.zeros((), dtype=torch.int64)
    mask = [True, True, True, False]
    return g, q, k, v, None, mask, out, sums, None, None, 40, 40, 0.0, True, zero, zero


@kernel("_scaled_dot_product_fused_attention_overrideable_backward", _gradient_arguments)
def flash_backward(g, q, k, v, bias, mask, out, sums, *rest, scale=None):
    """Heads apart; P and dS through the arguments' dtype; grouped heads summed at the end."""
    group, scale = q.shape[1] // k.shape[1], scale or q.shape[-1] ** -0.5
    key, value = (wide(t.repeat_interleave(group, 1)) for t in (k, v))
    s = wide(q) @ key.mT * scale
    s = s.masked_fill(~torch.ones(s.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    p = torch.exp(s - sums[..., None])
    along = (wide(g) * wide(out)).sum(-1, keepdim=True)
    ds = wide((p * (wide(g) @ value.mT - along) * scale).to(q.dtype))
    dk, dv = ds.mT @ wide(q), wide(p.to(q.dtype)).mT @ wide(g)
    dk, dv = (t.to(q.dtype).float().unflatten(1, (-1, group)).sum(2) for t in (dk, dv))

    def laid(t: torch.Tensor) -> torch.Tensor:  # as the cpu's: rows before heads
        return t.to(q.dtype).transpose(1, 2).contiguous().transpose(1, 2)

    return laid(ds @ key), laid(dk), laid(dv), None
