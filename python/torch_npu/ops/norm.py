# SPDX-License-Identifier: Apache-2.0
"""Norms: arithmetic in float32, statistics float32, results rounded once."""

import torch

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import INT4, dtype_of, elements, floating, require, shapes, wide
from torch_npu.ops._groups import values_of
from torch_npu.ops.quant import store_integers
from torch_npu.ops.quant_mx import rounded_mx


def _dims(x, gamma, name: str, argument: str = "gamma"):
    count = gamma.dim()
    require(
        0 < count <= x.dim() and x.shape[x.dim() - count :] == gamma.shape,
        f"{name}: {argument} has shape {list(gamma.shape)}, which must be the last sizes of x's {list(x.shape)}.",
    )
    return list(range(-count, 0))


def _check_epsilon(name: str, epsilon: float) -> None:
    require(epsilon >= 0, f"{name}: epsilon is {epsilon}; it must not be negative.", "VALUE")


def _rms(x, gamma, epsilon, name, plus_one=False):
    """(y in wide dtype, rstd)"""
    floating(name, x=x, gamma=gamma)
    dims = _dims(x, gamma, name)
    _check_epsilon(name, epsilon)
    x, factor = wide(x), wide(gamma)
    rstd = torch.rsqrt((x * x).mean(dims, keepdim=True) + epsilon)
    return x * rstd * (factor + 1 if plus_one else factor), rstd


def _statistic(rstd):
    return rstd.detach().float()


@implements("npu_rms_norm")
def npu_rms_norm(input, gamma, epsilon=1e-6):
    y, rstd = _rms(input, gamma, epsilon, "npu_rms_norm")
    return y.to(input.dtype), _statistic(rstd)


def _rms_backward(dy, input, gamma, rstd, name):
    """(dx in wide dtype, dgamma)"""
    dims = _dims(input, gamma, name)
    x, g, r = wide(input), wide(dy) * wide(gamma), rstd.to(wide(input).dtype)
    dx = r * (g - x * r * r * (g * x).mean(dims, keepdim=True))
    dgamma = (
        (wide(dy) * x * r).flatten(0, x.dim() - gamma.dim() - 1).sum(0)
        if x.dim() > gamma.dim()
        else wide(dy) * x * r
    )
    return dx, dgamma if dgamma.dtype == torch.float64 else dgamma.float()


@implements("npu_rms_norm_backward")
def npu_rms_norm_backward(dy, input, gamma, rstd):
    dx, dgamma = _rms_backward(dy, input, gamma, rstd, "npu_rms_norm_backward")
    return dx.to(input.dtype), dgamma


@implements("npu_gemma_rms_norm")
def npu_gemma_rms_norm(input, gamma, epsilon=1e-6):
    y, rstd = _rms(input, gamma, epsilon, "npu_gemma_rms_norm", plus_one=True)
    return y.to(input.dtype), _statistic(rstd)


def _sum(x1, x2, name: str):
    require(
        x1.shape == x2.shape,
        f"{name}: x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}; they must be the same.",
    )
    return (wide(x1) + wide(x2)).to(x1.dtype)


def _add_rms(x1, x2, gamma, epsilon, name):
    total = _sum(x1, x2, name)
    y, rstd = _rms(total, gamma, epsilon, name)
    return y, _statistic(rstd), total


@implements("npu_add_rms_norm")
def npu_add_rms_norm(x1, x2, gamma, epsilon=1e-6):
    y, rstd, total = _add_rms(x1, x2, gamma, epsilon, "npu_add_rms_norm")
    return y.to(x1.dtype), rstd, total


@implements("npu_add_rms_norm_cast")
def npu_add_rms_norm_cast(x1, x2, gamma, epsilon=1e-6):
    y, rstd, total = _add_rms(x1, x2, gamma, epsilon, "npu_add_rms_norm_cast")
    return y.float(), y.to(x1.dtype), rstd, total


@implements("npu_add_rms_norm_v2")
def npu_add_rms_norm_v2(x1, x2, gamma, epsilon=1e-6):
    y, rstd, total = _add_rms(x1, x2, gamma, epsilon, "npu_add_rms_norm_v2")
    x1.copy_(y)
    x2.copy_(total)
    return rstd


@implements("npu_add_rms_norm_v2_functional")
def npu_add_rms_norm_v2_functional(x1, x2, gamma, epsilon=1e-6):
    y, rstd, total = _add_rms(x1, x2, gamma, epsilon, "npu_add_rms_norm_v2_functional")
    return rstd, y.to(x1.dtype), total


def _to_int8(y):
    return torch.clamp(torch.round(y), -128, 127).to(torch.int8)


def _scaled(y, scale, zero_point, div_mode):
    y = y / wide(scale) if div_mode else y * wide(scale)
    return y if zero_point is None else y + wide(zero_point)


def _static(y, scale, zero_point, div_mode):
    return _to_int8(_scaled(y, scale, zero_point, div_mode))


@implements("npu_add_rms_norm_quant")
def npu_add_rms_norm_quant(
    x1, x2, gamma, scales1, zero_points1, beta=None, scales2=None, zero_points2=None, *, axis=-1,
    epsilon=1e-6, div_mode=True, dst_type=None,
):  # fmt: skip
    name = "npu_add_rms_norm_quant"
    require(axis == -1, f"{name}: axis is {axis}; allowed: -1.")
    kind = dtype_of(dst_type, torch.int8, name)
    require(kind == torch.int8, f"{name}: dst_type is {kind}; allowed: int8.", "TYPE")
    y, _, total = _add_rms(x1, x2, gamma, epsilon, name)
    y = y if beta is None else y + wide(beta)
    y1 = _static(y, scales1, zero_points1, div_mode)
    y2 = torch.zeros_like(y1) if scales2 is None else _static(y, scales2, zero_points2, div_mode)
    return y1, y2, total


@implements("npu_add_rms_norm_dynamic_quant")
def npu_add_rms_norm_dynamic_quant(
    x1, x2, gamma, *, smooth_scale1=None, smooth_scale2=None, beta=None, epsilon=1e-6,
    output_mask=None, y_dtype=None,
):  # fmt: skip
    name = "npu_add_rms_norm_dynamic_quant"
    kind = dtype_of(y_dtype, torch.int8, name, "y_dtype")
    require(kind == torch.int8, f"{name}: y_dtype is {kind}; allowed: int8.", "TYPE")
    y, _, total = _add_rms(x1, x2, gamma, epsilon, name)
    y = y if beta is None else y + wide(beta)
    second = smooth_scale1 is not None and smooth_scale2 is not None
    asked = list(output_mask) if output_mask else [True, second]
    results = []
    for wanted, smooth in zip(asked, (smooth_scale1, smooth_scale2)):
        if not wanted:
            results.append((y.new_empty(0, dtype=torch.int8), y.new_empty(0, dtype=torch.float32)))
            continue
        z = y if smooth is None else y * wide(smooth)
        scale = z.abs().amax(-1, keepdim=True) / 127
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        results.append((_to_int8(z / scale), scale.squeeze(-1).float()))
    return results[0][0], results[1][0], total, results[0][1], results[1][1]


@implements("npu_rms_norm_quant")
def npu_rms_norm_quant(x, gamma, beta, scale, offset, epsilon=1e-6, *, dst_dtype=None):
    name = "npu_rms_norm_quant"
    kind = dtype_of(dst_dtype, torch.int8, name, "dst_dtype")
    require(kind == torch.int8, f"{name}: dst_dtype is {kind}; allowed: int8.", "TYPE")
    y, _ = _rms(x, gamma, epsilon, name)
    return _static(y + wide(beta), scale, offset, div_mode=False)


@implements("npu_rms_norm_quant_v2")
def npu_rms_norm_quant_v2(
    x, gamma, scale, *, offset=None, beta=None, epsilon=1e-6, div_mode=True, dst_dtype=None
):
    name = "npu_rms_norm_quant_v2"
    columns = gamma.numel()
    elements(name, (1, columns), scale=scale, offset=offset)
    y, rstd = _rms(x, gamma, epsilon, name)
    y = _scaled(y if beta is None else y + wide(beta), scale, offset, div_mode)
    if dst_dtype in lowp.NUMBERS:
        kind = lowp.kind_of(dst_dtype, name, "dst_dtype", (lowp.HIF8, *lowp.FP8))
        return lowp.encode(y, kind), _statistic(rstd)
    kind = dtype_of(dst_dtype, torch.int8, name, "dst_dtype")
    require(
        kind in (torch.int8, INT4),
        f"{name}: dst_dtype is {dst_dtype}; allowed: int8, int4, fp8, hifloat8.",
        "TYPE",
    )
    return store_integers(y, kind, name), _statistic(rstd)


@implements("npu_rms_norm_dynamic_mx_quant")
def npu_rms_norm_dynamic_mx_quant(
    x, gamma, *, beta=None, epsilon=1e-6, scale_alg=0, round_mode="rint", dst_type=296
):
    name = "npu_rms_norm_dynamic_mx_quant"
    y, rstd = _rms(x, gamma, epsilon, name)
    y = y if beta is None else y + wide(beta)
    y, scale = rounded_mx(name, y, x.dtype, dst_type, round_mode, scale_alg)
    return y, scale, _statistic(rstd)


@implements("npu_add_rms_norm_dynamic_mx_quant")
def npu_add_rms_norm_dynamic_mx_quant(
    x1, x2, gamma, *, beta=None, epsilon=1e-6, scale_alg=0, round_mode="rint", dst_type=296
):
    name = "npu_add_rms_norm_dynamic_mx_quant"
    y, rstd, total = _add_rms(x1, x2, gamma, epsilon, name)
    y = y if beta is None else y + wide(beta)
    y, scale = rounded_mx(name, y, x1.dtype, dst_type, round_mode, scale_alg)
    return y, total, scale, rstd


@implements("_npu_rms_norm_backward_quant")
def _npu_rms_norm_backward_quant(
    dy, x, rstd, gamma, scale_x, *, offset_x=None, div_mode=True, quant_mode="static", dst_type=1
):
    name = "_npu_rms_norm_backward_quant"
    require(
        quant_mode == "static", f"{name}: quant_mode is {quant_mode}; allowed: static.", "VALUE"
    )
    kind = dtype_of(dst_type, torch.int8, name)
    require(kind == torch.int8, f"{name}: dst_type is {dst_type}; allowed: int8.", "TYPE")
    elements(name, (1,), scale_x=scale_x, offset_x=offset_x)
    dx, dgamma = _rms_backward(dy, x, gamma, rstd, name)
    return _static(dx, scale_x, offset_x, div_mode), dgamma


@implements("batch_norm_gather_stats_update")
def batch_norm_gather_stats_update(
    input, mean, invstd, running_mean, running_var, momentum, eps, counts
):
    """`mean` and `invstd` are the sums and sums of squares that batch_norm_reduce gives on each rank."""
    name = "batch_norm_gather_stats_update"
    require(
        mean.dim() == 2 and invstd.shape == mean.shape and counts.numel() == mean.size(0),
        f"{name}: mean has shape {list(mean.shape)}, invstd {list(invstd.shape)} and counts "
        f"{list(counts.shape)}; allowed: [ranks, channels] twice, [ranks].",
    )
    channels = [mean.size(1)]
    shapes(name, running_mean=(running_mean, channels), running_var=(running_var, channels))
    count = wide(counts).sum()
    average = wide(mean).sum(0) / count
    variance = wide(invstd).sum(0) / count - average * average
    for running, new in (
        (running_mean, average),
        (running_var, variance * count / (count - 1)),
    ):
        if running is not None:
            running.copy_(wide(running) * (1 - momentum) + new * momentum)
    return average.float(), torch.rsqrt(variance + eps).float()


@implements("npu_normalize_batch")
def npu_normalize_batch(input, seq_len, normalize_type=0):
    name = "npu_normalize_batch"
    floating(name, input=input)
    require(input.dim() == 3, f"{name}: input has {input.dim()} dimensions; allowed: 3.")
    batch, features, frames = input.shape
    require(
        list(seq_len.shape) == [batch],
        f"{name}: seq_len has shape {list(seq_len.shape)}; allowed: [{batch}].",
    )
    require(
        normalize_type in (0, 1),
        f"{name}: normalize_type is {normalize_type}; allowed: 0 (per feature), 1 (all features).",
        "VALUE",
    )
    lengths = values_of(seq_len)
    require(
        lengths is None or all(0 <= n <= frames for n in lengths),
        f"{name}: seq_len is {lengths}; allowed: 0 to {frames}.",
        "VALUE",
    )
    x = wide(input)
    real = (torch.arange(frames, device=x.device) < seq_len[:, None])[:, None, :]
    dims = [2] if normalize_type == 0 else [1, 2]
    count = (seq_len.to(x.dtype) * (1 if normalize_type == 0 else features)).view(-1, 1, 1)
    mean = torch.where(real, x, 0).sum(dims, keepdim=True) / count
    centred = torch.where(real, x - mean, 0)
    deviation = torch.sqrt((centred * centred).sum(dims, keepdim=True) / (count - 1))
    return ((x - mean) / (deviation + 1e-5)).to(input.dtype)


@implements("npu_deep_norm")
def npu_deep_norm(x, gx, beta, gamma, alpha=0.3, epsilon=1e-6):
    name = "npu_deep_norm"
    dims = _dims(x, gamma, name)
    _check_epsilon(name, epsilon)
    z = wide(x) * alpha + wide(gx)
    y, mean, rstd = _layer(z, dims, gamma, beta, epsilon)
    return _statistic(mean), _statistic(rstd), y.to(x.dtype)


def _layer(z, dims, gamma, beta, epsilon):
    mean = z.mean(dims, keepdim=True)
    centred = z - mean
    rstd = torch.rsqrt((centred * centred).mean(dims, keepdim=True) + epsilon)
    return centred * rstd * wide(gamma) + wide(beta), mean, rstd


@implements("npu_add_layer_norm")
def npu_add_layer_norm(x1, x2, gamma, beta, epsilon=1e-5, additional_output=False):
    name = "npu_add_layer_norm"
    require(
        x1.shape == x2.shape,
        f"{name}: x1 has shape {list(x1.shape)} and x2 {list(x2.shape)}; they must be the same.",
    )
    dims = _dims(x1, gamma, name)
    dtype = x1.dtype if x1.dtype == x2.dtype else torch.float32
    total = wide(x1) + wide(x2)
    y, mean, rstd = _layer(total, dims, gamma, beta, epsilon)
    return y.to(dtype), _statistic(mean), _statistic(rstd), total.to(dtype)


def _groups(x, groups, weight, bias, eps, name):
    """Group norm in wide dtype, mean and rstd (N, groups)."""
    require(
        x.dim() >= 2 and groups > 0 and x.size(1) % groups == 0,
        f"{name}: the number of groups is {groups}, which must divide x's channels in {list(x.shape)}.",
    )
    z = wide(x).reshape(x.size(0), groups, -1)
    mean = z.mean(-1, keepdim=True)
    centred = z - mean
    rstd = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    y = (centred * rstd).reshape(x.shape)
    shape = (1, -1) + (1,) * (x.dim() - 2)
    y = y if weight is None else y * wide(weight).reshape(shape)
    y = y if bias is None else y + wide(bias).reshape(shape)
    return y, mean.squeeze(-1), rstd.squeeze(-1)


@implements("npu_group_norm_silu")
def npu_group_norm_silu(input, weight, bias, group, eps=1e-5):
    y, mean, rstd = _groups(input, group, weight, bias, eps, "npu_group_norm_silu")
    y = y * torch.sigmoid(y)
    return y.to(input.dtype), mean.detach().to(input.dtype), rstd.detach().to(input.dtype)


@implements("npu_group_norm_swish")
def npu_group_norm_swish(input, num_groups, weight, bias, eps=1e-5, swish_scale=1.0):
    y, mean, rstd = _groups(input, num_groups, weight, bias, eps, "npu_group_norm_swish")
    y = y * torch.sigmoid(y * swish_scale)
    return y.to(input.dtype), _statistic(mean), _statistic(rstd)


@implements("npu_layer_norm_eval")
def npu_layer_norm_eval(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return torch.nn.functional.layer_norm(input, normalized_shape, weight, bias, eps)
