# SPDX-License-Identifier: Apache-2.0
"""Manifold-constrained hyper-connections: the streams of a residual path, mixed before and after a layer."""

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, shapes, wide

_STREAMS = (4, 6, 8)  # sizes that Sinkhorn's iteration takes
_PADDED = 8  # elements of a saved row


def _wide(*tensors):
    """All in float32, or float64 when one of them is."""
    given = [t for t in tensors if t is not None]
    double = any(t.dtype == torch.float64 for t in given)
    dtype = torch.float64 if double else torch.float32
    return [None if t is None else t.to(dtype) for t in tensors]


def _check_post(name, x, h_res, h_out, h_post) -> None:
    floating(name, x=x, h_res=h_res, h_out=h_out, h_post=h_post)
    require(
        x.dim() in (3, 4),
        f"{name}: x has {x.dim()} dimensions; allowed: 3, (T, n, D), or 4, (B, S, n, D).",
    )
    lead, n, size = x.shape[:-2], x.size(-2), x.size(-1)
    shapes(
        name,
        h_res=(h_res, (*lead, n, n)),
        h_out=(h_out, (*lead, size)),
        h_post=(h_post, (*lead, n)),
    )


@implements("npu_mhc_post")
def npu_mhc_post(x, h_res, h_out, h_post):
    """Stream j gets the sum over i of h_res[i, j] · x[i], and h_post[j] · h_out."""
    _check_post("npu_mhc_post", x, h_res, h_out, h_post)
    streams, res, layer, weights = _wide(x, h_res, h_out, h_post)
    mixed = streams if res is None else res.transpose(-1, -2) @ streams
    return (mixed + weights.unsqueeze(-1) * layer.unsqueeze(-2)).to(x.dtype)


@implements("npu_mhc_post_backward")
def npu_mhc_post_backward(grad_y, x, h_res, h_out, h_post):
    name = "npu_mhc_post_backward"
    _check_post(name, x, h_res, h_out, h_post)
    require(
        grad_y.shape == x.shape,
        f"{name}: grad_y shape must be the same as x shape. grad_y has {list(grad_y.shape)}, x {list(x.shape)}.",
    )
    g, streams, res, layer, weights = _wide(grad_y, x, h_res, h_out, h_post)
    of_x, of_res = g, g.new_empty(0)
    if res is not None:
        of_x, of_res = res @ g, streams @ g.transpose(-1, -2)
    of_out = (weights.unsqueeze(-1) * g).sum(-2)
    of_post = (layer.unsqueeze(-2) * g).sum(-1)
    return of_x.to(x.dtype), of_res, of_out.to(h_out.dtype), of_post


def _check_pre(name, x, phi, alpha, bias, gamma) -> None:
    floating(name, x=x, phi=phi, alpha=alpha, bias=bias, gamma=gamma)
    require(
        x.dim() in (3, 4),
        f"{name}: x has {x.dim()} dimensions; allowed: 3, (T, n, D), or 4, (B, S, n, D).",
    )
    require(
        alpha.numel() in (2, 3),
        f"{name}: Input alpha must have 3 or 2 elements, but got {alpha.numel()}.",
    )
    n, size = x.size(-2), x.size(-1)
    rows = 2 * n if alpha.numel() == 2 else n * n + 2 * n
    shapes(name, phi=(phi, (rows, n * size)), bias=(bias, (rows,)), gamma=(gamma, (n, size)))


def _normed(streams, gamma):
    """(…, n·D), times gamma where that is given."""
    return (streams if gamma is None else streams * gamma).flatten(-2)


def _of_rows(alpha, n: int):
    """alpha for each row of phi: n rows of the first, n of the second, n² of the third."""
    counts = (n, n, n * n)[: alpha.numel()]
    return torch.cat([a.expand(c) for a, c in zip(alpha.flatten().unbind(), counts)])


@implements("npu_mhc_pre")
def npu_mhc_pre(
    x, phi, alpha, bias, *, gamma=None, norm_eps=1e-6, hc_eps=1e-6, out_flag=0, inner_precise=0
):
    """(h_in, h_post, h_res, and what backward reads: inv_rms, h_mix, h_pre)"""
    _check_pre("npu_mhc_pre", x, phi, alpha, bias, gamma)
    n = x.size(-2)
    streams, phi, alpha, bias, gamma = _wide(x, phi, alpha, bias, gamma)
    inv_rms = torch.rsqrt(streams.flatten(-2).square().mean(-1) + norm_eps)
    h_mix = F.linear(_normed(streams, gamma), phi)
    z = h_mix * inv_rms.unsqueeze(-1) * _of_rows(alpha, n) + bias
    h_pre = torch.sigmoid(z[..., :n]) + hc_eps
    h_post = 2 * torch.sigmoid(z[..., n : 2 * n])
    h_res = z[..., 2 * n :].unflatten(-1, (n, n)) if alpha.numel() == 3 else z.new_zeros(1)
    h_in = (h_pre.unsqueeze(-1) * streams).sum(-2).to(x.dtype)
    return h_in, h_post, h_res, inv_rms.detach(), h_mix.detach(), h_pre.detach()


@implements("npu_mhc_pre_backward")
def npu_mhc_pre_backward(
    x, phi, alpha, grad_h_in, grad_h_post, grad_h_res, inv_rms, h_mix, h_pre, h_post, gamma=None,
    hc_eps=1e-6, grad_x_post=None,
):  # fmt: skip
    name = "npu_mhc_pre_backward"
    _check_pre(name, x, phi, alpha, None, gamma)
    n, size = x.size(-2), x.size(-1)
    kinds = [None if t is None else t.dtype for t in (x, phi, alpha, gamma)]
    (
        streams, phi, alpha, gamma, g, of_post, of_res, inverse, mixed, h_pre, h_post, extra
    ) = _wide(
        x, phi, alpha, gamma, grad_h_in, grad_h_post, grad_h_res, inv_rms, h_mix, h_pre, h_post, grad_x_post
    )  # fmt: skip
    inverse = inverse.unsqueeze(-1)
    pre, post = h_pre - hc_eps, h_post / 2
    of_z = [(streams * g.unsqueeze(-2)).sum(-1) * pre * (1 - pre), of_post * 2 * post * (1 - post)]
    if alpha.numel() == 3:
        of_z.append(of_res.flatten(-2))
    of_z = torch.cat(of_z, -1)
    of_bias = of_z.flatten(0, -2).sum(0)
    of_rows = (of_z * mixed * inverse).flatten(0, -2).sum(0)
    counts = [n, n, n * n][: alpha.numel()]
    of_alpha = torch.stack([part.sum() for part in of_rows.split(counts)]).view_as(alpha)
    of_m = of_z * _of_rows(alpha, n)
    of_mix = of_m * inverse
    of_normed = (of_mix @ phi).unflatten(-1, (n, size))
    of_phi = of_mix.flatten(0, -2).t() @ _normed(streams, gamma).flatten(0, -2)
    # m is h_mix / rms: what the root mean square adds.
    through = (of_m * mixed).sum(-1, keepdim=True) * inverse**3 / (n * size)
    of_x = of_normed if gamma is None else of_normed * gamma
    of_x = of_x - through.unsqueeze(-1) * streams + h_pre.unsqueeze(-1) * g.unsqueeze(-2)
    of_x = of_x if extra is None else of_x + extra
    of_gamma = g.new_empty(0)
    if gamma is not None:
        of_gamma = (of_normed * streams).flatten(0, -3).sum(0)
    found = (of_x, of_phi, of_alpha, of_gamma)
    of_x, of_phi, of_alpha, of_gamma = (
        t if kind is None else t.to(kind) for t, kind in zip(found, kinds)
    )
    return of_x, of_phi, of_alpha, of_bias, of_gamma


def _padded(x):
    """The last size, padded to eight."""
    return F.pad(x.detach(), (0, _PADDED - x.size(-1)))


@implements("npu_mhc_sinkhorn")
def npu_mhc_sinkhorn(x, *, eps=1e-6, num_iters=20, out_flag=0):
    """With out_flag 1 also the matrices and divisors of each step, in a layout of our own."""
    name = "npu_mhc_sinkhorn"
    floating(name, x=x)
    require(
        x.dim() in (3, 4) and x.size(-1) == x.size(-2) and x.size(-1) in _STREAMS,
        f"{name}: x has shape {list(x.shape)}; allowed: (T, n, n) or (B, S, n, n) with n 4, 6 or 8.",
    )
    require(0 < num_iters <= 100, f"{name}: num_iters is {num_iters}; allowed: 1 to 100.", "VALUE")
    n = x.size(-1)
    y = torch.softmax(wide(x), -1)
    norms, sums = [y], [torch.ones_like(y[..., 0])]
    y = y + eps
    for step in range(1, 2 * num_iters):
        dim = -2 if step % 2 else -1
        divisor = y.sum(dim, keepdim=True) + eps
        y = y / divisor
        norms.append(y)
        sums.append(divisor.squeeze(dim))
    if not out_flag:
        return y.to(x.dtype), None, None
    norm = torch.stack([_padded(t.reshape(-1, n, n)) for t in norms])
    total = torch.stack([_padded(t.reshape(-1, n)) for t in sums])
    return y.to(x.dtype), norm.flatten(), total.flatten()


@implements("npu_mhc_sinkhorn_backward")
def npu_mhc_sinkhorn_backward(grad_y, norm, sum):
    """`norm` and `sum`: what npu_mhc_sinkhorn gave with out_flag 1."""
    name = "npu_mhc_sinkhorn_backward"
    floating(name, grad_y=grad_y, norm=norm, sum=sum)
    n = grad_y.size(-1)
    rows = grad_y.numel() // max(n * n, 1)
    steps = norm.numel() // max(rows * n * _PADDED, 1)
    require(
        grad_y.dim() in (3, 4) and grad_y.size(-2) == n and n in _STREAMS,
        f"{name}: grad_y has shape {list(grad_y.shape)}; allowed: (T, n, n) or (B, S, n, n) with n 4, 6 or 8.",
    )
    require(
        norm.numel() == steps * rows * n * _PADDED and sum.numel() == steps * rows * _PADDED,
        f"{name}: norm has {norm.numel()} elements and sum {sum.numel()}; npu_mhc_sinkhorn with out_flag 1 gives "
        f"a multiple of {rows * n * _PADDED} and of {rows * _PADDED} for grad_y of shape {list(grad_y.shape)}.",
    )
    norms = wide(norm).view(steps, rows, n, _PADDED)[..., :n]
    sums = wide(sum).view(steps, rows, _PADDED)[..., :n]
    g = wide(grad_y).reshape(rows, n, n)
    for step in range(steps - 1, 0, -1):
        dim = -2 if step % 2 else -1
        g = (g - (g * norms[step]).sum(dim, keepdim=True)) / sums[step].unsqueeze(dim)
    if steps:
        g = (g - (g * norms[0]).sum(-1, keepdim=True)) * norms[0]
    return g.reshape(grad_y.shape).to(grad_y.dtype)
