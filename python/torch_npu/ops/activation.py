# SPDX-License-Identifier: Apache-2.0
"""Activations, gated linear units, masked softmax, and dropout with packed masks."""

import math

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._attend import keep_bits
from torch_npu.ops._check import floating, require, wide


def _halves(x, dim: int, name: str):
    floating(name, x=x)
    require(
        -x.dim() <= dim < x.dim(),
        f"{name}: dim is {dim}; x has {x.dim()} dimensions.",
        "VALUE",
    )
    size = x.size(dim)
    require(
        size % 2 == 0,
        f"{name}: x shape: {list(x.shape)} Dim [{dim}] of x should be divisible by 2, but get [{size}]",
    )
    return x.chunk(2, dim)


def _gelu(x, approximate: str, name: str):
    require(
        approximate in ("none", "tanh"),
        f"{name}: approximate is '{approximate}'; allowed: none, tanh.",
    )
    return F.gelu(x, approximate=approximate)


@implements("npu_swiglu")
def npu_swiglu(input, dim=-1):
    a, b = _halves(input, dim, "npu_swiglu")
    return (F.silu(wide(a)) * wide(b)).to(input.dtype)


@implements("npu_swiglu_backward")
def npu_swiglu_backward(grad_output, input, dim=-1):
    a, b = _halves(input, dim, "npu_swiglu_backward")
    a, b, g = wide(a), wide(b), wide(grad_output)
    s = torch.sigmoid(a)
    return torch.cat((g * b * s * (1 + a * (1 - s)), g * a * s), dim).to(input.dtype)


@implements("npu_clipped_swiglu")
def npu_clipped_swiglu(
    x, *, group_index=None, dim=-1, alpha=1.702, limit=7.0, bias=1.0, interleaved=True
):
    name = "npu_clipped_swiglu"
    a, b = _halves(x, dim, name)
    if interleaved:
        at = dim % x.dim()
        a, b = x.unflatten(at, (-1, 2)).unbind(at + 1)
    a = wide(a).clamp(max=limit)
    y = a * torch.sigmoid(alpha * a) * (wide(b).clamp(-limit, limit) + bias)
    if group_index is not None:
        rows = y.flatten(0, dim % x.dim() - 1) if dim % x.dim() > 1 else y
        real = torch.arange(rows.size(0), device=x.device) < group_index.sum()
        y = torch.where(real.view(-1, *[1] * (rows.dim() - 1)), rows, rows.new_zeros(())).view_as(y)
    return y.to(x.dtype)


@implements("npu_geglu")
def npu_geglu(input, dim=-1, approximate=1, activate_left=False):
    name = "npu_geglu"
    require(
        approximate in (0, 1),
        f"{name}: approximate is {approximate}; allowed: 0 (erf), 1 (tanh).",
        "VALUE",
    )
    left, right = _halves(input, dim, name)
    if activate_left:
        left, right = right, left
    g = F.gelu(wide(right), approximate="tanh" if approximate == 1 else "none")
    return (wide(left) * g).to(input.dtype), g.to(input.dtype)


@implements("npu_geglu_grad")
def npu_geglu_grad(grad_output, input, gelu, dim=-1, approximate=1, activate_left=False):
    name = "npu_geglu_grad"
    left, right = _halves(input, dim, name)
    if activate_left:
        left, right = right, left
    dy = wide(grad_output)
    how = "tanh" if approximate == 1 else "none"
    dright = torch.ops.aten.gelu_backward(dy * wide(left), wide(right), approximate=how)
    parts = (dy * wide(gelu), dright)
    return torch.cat(parts[::-1] if activate_left else parts, dim).to(input.dtype)


@implements("npu_gelu")
def npu_gelu(input, *, approximate="none"):
    return _gelu(input, approximate, "npu_gelu")


@implements("npu_gelu_backward")
def npu_gelu_backward(grad_output, input, *, approximate="none"):
    return torch.ops.aten.gelu_backward(grad_output, input, approximate=approximate)


@implements("npu_gelu_mul")
def npu_gelu_mul(input, *, approximate="none"):
    left, right = _halves(input, -1, "npu_gelu_mul")
    return (_gelu(wide(left), approximate, "npu_gelu_mul") * wide(right)).to(input.dtype)


@implements("npu_fast_gelu", "fast_gelu")
def npu_fast_gelu(input):
    x = wide(input)
    return (x * torch.sigmoid(1.702 * x)).to(input.dtype)


@implements("npu_fast_gelu_backward")
def npu_fast_gelu_backward(grad, input):
    x = wide(input)
    s = torch.sigmoid(1.702 * x)
    return (wide(grad) * (s + 1.702 * x * s * (1 - s))).to(input.dtype)


@implements("npu_silu")
def npu_silu(input):
    return F.silu(input)


@implements("npu_silu_")
def npu_silu_(input):
    return F.silu(input, inplace=True)


@implements("npu_silu_backward")
def npu_silu_backward(grad_output, x0, x1):
    """x0 is silu's input, x1 its output."""
    return torch.ops.aten.silu_backward(grad_output, x0)


@implements("npu_mish")
def npu_mish(input):
    return F.mish(input)


@implements("npu_mish_backward")
def npu_mish_backward(grad, input):
    return torch.ops.aten.mish_backward(grad, input)


@implements("npu_scaled_masked_softmax")
def npu_scaled_masked_softmax(x, mask, scale=1, fixed_triu_mask=False):
    name = "npu_scaled_masked_softmax"
    require(mask.dtype == torch.bool, f"{name}: mask is {mask.dtype}; allowed: torch.bool.", "TYPE")
    scores = (wide(x) * scale).masked_fill(mask, -10000.0)
    return torch.softmax(scores, -1).to(x.dtype)


@implements("npu_scaled_masked_softmax_backward")
def npu_scaled_masked_softmax_backward(y_grad, y, mask, scale, fixed_triu_mask):
    g, p = wide(y_grad), wide(y)
    dx = p * (g - (g * p).sum(-1, keepdim=True)) * scale
    return dx.masked_fill(mask, 0.0).to(y.dtype)


def _check_p(name: str, p: float) -> None:
    require(0 <= p < 1, f"{name}: p is {p}; allowed: 0 <= p < 1.", "VALUE")


def _pack(keep):
    """Bits, little end first, in whole blocks of 128."""
    flat = keep.flatten().to(torch.uint8)
    flat = F.pad(flat, (0, -flat.numel() % 128)).view(-1, 8)
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], device=keep.device)
    return (flat * weights).sum(-1).to(torch.uint8)


def _unpack(mask, like):
    places = torch.arange(8, device=mask.device, dtype=torch.uint8)
    return ((mask[:, None] >> places) & 1).flatten()[: like.numel()].view(like.shape)


@implements("_npu_dropout")
def _npu_dropout(input, p):
    _check_p("_npu_dropout", p)
    keep = torch.rand(input.shape, device=input.device) >= p
    return (wide(input) * keep / (1 - p)).to(input.dtype), _pack(keep)


@implements("npu_dropout_gen_mask")
def npu_dropout_gen_mask(size, p, *, dtype=None, layout=None, device=None, pin_memory=None):
    _check_p("npu_dropout_gen_mask", p)
    return _pack(torch.rand(math.prod(size), device="npu" if device is None else device) >= p)


@implements("_npu_dropout_gen_mask.Tensor")
def _npu_dropout_gen_mask(input, size, p, seed, offset, *, parallel=True, sync=None):
    """The bits that npu_fusion_attention keeps with this seed and offset."""
    _check_p("_npu_dropout_gen_mask", p)
    require(
        offset >= 0, f"_npu_dropout_gen_mask: offset is {offset}; it must not be negative.", "VALUE"
    )
    return _pack(keep_bits(seed, offset, size, 1 - p, input.device))


@implements("npu_dropout_do_mask")
def npu_dropout_do_mask(input, mask, p):
    _check_p("npu_dropout_do_mask", p)
    return (wide(input) * _unpack(mask, input) / (1 - p)).to(input.dtype), mask.clone()


@implements("npu_dropout_backward")
def npu_dropout_backward(grad_output, mask, p):
    _check_p("npu_dropout_backward", p)
    return (wide(grad_output) * _unpack(mask, grad_output) / (1 - p)).to(grad_output.dtype)


@implements("npu_dropout_with_add_softmax")
def npu_dropout_with_add_softmax(input, x1, alpha, prob, dim):
    _check_p("npu_dropout_with_add_softmax", prob)
    s = torch.softmax(wide(x1) + alpha * wide(input), dim)
    keep = torch.rand(s.shape, device=s.device) >= prob
    return _pack(keep), s.to(input.dtype), (s * keep / (1 - prob)).to(input.dtype)
