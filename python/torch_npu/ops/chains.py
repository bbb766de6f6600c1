# SPDX-License-Identifier: Apache-2.0
"""Chains that Ascend runs as one kernel: products with activations, quantisation after them, norm and rotation into caches."""

from itertools import pairwise

import torch
import torch.nn.functional as F

from torch_npu.ops import activation, cache, implements
from torch_npu.ops._check import dtype_of, refuse_given, require, wide
from torch_npu.ops.matmul import scale_of
from torch_npu.ops.norm import _rms
from torch_npu.ops.rotary import _rotate

_AFTER = {
    "": lambda y, x3: y,
    "16cast32": lambda y, x3: y,
    "relu": lambda y, x3: F.relu(y),
    "gelu_erf": lambda y, x3: F.gelu(y),
    "gelu_tanh": lambda y, x3: F.gelu(y, approximate="tanh"),
    "add": lambda y, x3: y + wide(x3),
    "mul": lambda y, x3: y * wide(x3),
}


@implements("npu_fused_matmul")
def npu_fused_matmul(x1, x2, *, bias=None, x3=None, fused_op_type=""):
    name = "npu_fused_matmul"
    require(
        fused_op_type in _AFTER,
        f"{name}: fused_op_type is '{fused_op_type}'; allowed: {', '.join(repr(k) for k in _AFTER)}.",
        "VALUE",
    )
    require(
        (x3 is not None) == (fused_op_type in ("add", "mul")),
        f"{name}: x3 goes with fused_op_type add and mul, and only with them; it is '{fused_op_type}'.",
    )
    y = wide(x1) @ wide(x2)
    y = _AFTER[fused_op_type](y if bias is None else y + wide(bias), x3)
    return y.float() if fused_op_type == "16cast32" else y.to(x1.dtype)


def _gated(act):
    def call(y):
        a, b = y.chunk(2, -1)
        return act(a) * b

    return call


_ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "fastgelu": lambda y: y * torch.sigmoid(1.702 * y),
    "silu": F.silu,
    "geglu": _gated(F.gelu),
    "swiglu": _gated(F.silu),
    "reglu": _gated(F.relu),
}


@implements("npu_ffn")
def npu_ffn(
    x, weight1, weight2, activation, *, expert_tokens=None, expert_tokens_index=None, bias1=None,
    bias2=None, scale=None, offset=None, deq_scale1=None, deq_scale2=None, antiquant_scale1=None,
    antiquant_scale2=None, antiquant_offset1=None, antiquant_offset2=None, inner_precise=None,
    output_dtype=None,
):  # fmt: skip
    name = "npu_ffn"
    act = activation.lower()
    require(
        act in _ACTIVATIONS,
        f"{name}: activation is {activation}; allowed: {', '.join(_ACTIVATIONS)}.",
        "VALUE",
    )
    require(
        expert_tokens is None or expert_tokens_index is None,
        f"{name}: give expert_tokens or expert_tokens_index, not both.",
    )
    quantised = {
        "scale": scale,
        "offset": offset,
        "deq_scale1": deq_scale1,
        "deq_scale2": deq_scale2,
    }
    antiquant = {
        "antiquant_scale1": antiquant_scale1, "antiquant_scale2": antiquant_scale2,
        "antiquant_offset1": antiquant_offset1, "antiquant_offset2": antiquant_offset2,
    }  # fmt: skip
    weights = {"weight1": weight1, "weight2": weight2, "bias1": bias1, "bias2": bias2}
    if _ffn_kind(name, x, weight1, weight2, quantised, antiquant) == "quantised":
        layer, given = _ffn_quantised, weights | quantised
        dtype = torch.float16 if output_dtype is None else output_dtype
    else:
        layer, given = _ffn_wide, weights | antiquant
        dtype = x.dtype if output_dtype is None else output_dtype
    if expert_tokens is None and expert_tokens_index is None:
        return layer(x, _ACTIVATIONS[act], **given).to(dtype)
    if expert_tokens is None:
        ends = [0, *expert_tokens_index]
        expert_tokens = [b - a for a, b in pairwise(ends)]
    require(
        x.dim() == 2 and sum(expert_tokens) == x.size(0) and len(expert_tokens) == weight1.size(0),
        f"{name}: expert_tokens is {list(expert_tokens)}; x has shape {list(x.shape)} and weight1 "
        f"{weight1.size(0)} experts.",
    )
    outs = [
        layer(rows, _ACTIVATIONS[act], **{k: None if t is None else t[e] for k, t in given.items()})
        for e, rows in enumerate(x.split(list(expert_tokens)))
    ]
    return torch.cat(outs).to(dtype)


def _ffn_kind(name, x, weight1, weight2, quantised, antiquant) -> str:
    """Which of the document's three formulas holds; each refuses the arguments of the others."""
    integers = x.dtype == torch.int8
    if integers:
        refuse_given(f"{name} with x of int8", **antiquant)
        missing = [key for key, t in quantised.items() if t is None and key != "offset"]
    else:
        refuse_given(f"{name} with x of {x.dtype}", **quantised)
        whole = {"1": weight1, "2": weight2}
        missing = [
            f"antiquant_scale{n}"
            for n, weight in whole.items()
            if weight.dtype == torch.int8 and antiquant[f"antiquant_scale{n}"] is None
        ]
    require(not missing, f"{name}: {', '.join(missing)} must be given with weights of int8.")
    return "quantised" if integers else "wide"


def _ffn_wide(
    rows, act, weight1, weight2, bias1, bias2, antiquant_scale1, antiquant_scale2,
    antiquant_offset1, antiquant_offset2,
):  # fmt: skip
    def weight(w, scale, offset):
        w = wide(w) if offset is None else wide(w) + wide(offset)
        return w if scale is None else w * wide(scale)

    y = wide(rows) @ weight(weight1, antiquant_scale1, antiquant_offset1)
    y = act(y if bias1 is None else y + wide(bias1))
    y = y @ weight(weight2, antiquant_scale2, antiquant_offset2)
    return y if bias2 is None else y + wide(bias2)


def _ffn_quantised(
    rows, act, weight1, weight2, bias1, bias2, scale, offset, deq_scale1, deq_scale2
):
    def product(x, w, bias, factor):  # float64 holds sums of products of int8 exactly
        y = x.double() @ w.double()
        return (y if bias is None else y + bias.double()) * scale_of(factor).double()

    y = act(product(rows, weight1, bias1, deq_scale1).float()) * wide(scale)
    return product(_int8(y if offset is None else y + wide(offset)), weight2, bias2, deq_scale2)


@implements("npu_masked_softmax_with_rel_pos_bias")
def npu_masked_softmax_with_rel_pos_bias(
    x, atten_mask, relative_pos_bias, scale_value=1.0, inner_precision_mode=0
):
    """x (B, W, N, S1, S2) or (B * W, N, S1, S2); mask (W, S1, S2), bias (N, S1, S2), also with sizes 1 between."""
    name = "npu_masked_softmax_with_rel_pos_bias"
    require(x.dim() in (4, 5), f"{name}: x has {x.dim()} dimensions; allowed: 4, 5.")
    heads, rows, columns = x.shape[-3:]
    bias = wide(relative_pos_bias).reshape(heads, rows, columns)
    y = wide(x) * scale_value + bias
    if atten_mask is not None:
        windows = atten_mask.numel() // (rows * columns)
        mask = wide(atten_mask).reshape(windows, 1, rows, columns)
        y = y + mask if x.dim() == 5 else (y.unflatten(0, (-1, windows)) + mask).flatten(0, 1)
    return torch.softmax(y, -1).to(x.dtype)


# ---- quantisation
def _int8(y):
    return torch.clamp(torch.round(y), -128, 127).to(torch.int8)


def _by_row(y):
    """(int8 rows, scale of each): scale 0 and results 0 for rows of zeros"""
    scale = y.abs().amax(-1, keepdim=True) / 127
    whole = torch.where(scale == 0, torch.ones_like(scale), scale)
    return _int8(y / whole), scale.squeeze(-1).float()


def _check_int8(name, number, argument="dst_type") -> None:
    kind = dtype_of(number, torch.int8, name, argument)
    require(kind == torch.int8, f"{name}: {argument} is {kind}; allowed: int8.", "TYPE")


@implements("npu_gelu_quant")
def npu_gelu_quant(
    input, *, input_scale=None, input_offset=None, approximate="none", quant_mode="dynamic",
    dst_type=None, round_mode="rint",
):  # fmt: skip
    name = "npu_gelu_quant"
    _check_int8(name, dst_type)
    require(
        quant_mode in ("dynamic", "static"),
        f"{name}: quant_mode is {quant_mode}; allowed: dynamic, static.",
        "VALUE",
    )
    y = activation._gelu(wide(input), approximate, name)
    if quant_mode == "dynamic":
        return _by_row(y if input_scale is None else y * wide(input_scale))
    require(input_scale is not None, f"{name}: input_scale must be given with quant_mode static.")
    y = y * wide(input_scale)
    y = y if input_offset is None else y + wide(input_offset)
    return _int8(y), input.new_empty(0, dtype=torch.float32)


@implements("npu_dequant_swiglu_quant")
def npu_dequant_swiglu_quant(
    x, *, weight_scale=None, activation_scale=None, bias=None, quant_scale=None, quant_offset=None,
    group_index=None, activate_left=False, quant_mode=0, dst_type=None, round_mode=None,
    activate_dim=None, swiglu_mode=0, clamp_limit=7.0, glu_alpha=1.702, glu_bias=1.0,
):  # fmt: skip
    name = "npu_dequant_swiglu_quant"
    refuse_given(name, group_index=group_index)
    _check_int8(name, dst_type)
    require(quant_mode in (0, 1), f"{name}: quant_mode is {quant_mode}; allowed: 0, 1.", "VALUE")
    require(swiglu_mode in (0, 1), f"{name}: swiglu_mode is {swiglu_mode}; allowed: 0, 1.", "VALUE")
    y = x.float() if bias is None or bias.is_floating_point() else (x + bias).float()
    y = y if weight_scale is None else y * wide(weight_scale)
    y = y if activation_scale is None else y * wide(activation_scale).reshape(*x.shape[:-1], 1)
    y = y if bias is None or not bias.is_floating_point() else y + wide(bias)
    if swiglu_mode == 1:
        a, b = y[..., ::2].clamp(max=clamp_limit), y[..., 1::2].clamp(-clamp_limit, clamp_limit)
        y = a * torch.sigmoid(glu_alpha * a) * (b + glu_bias)
    else:
        a, b = activation._halves(y, -1, name)
        y = F.silu(a) * b if activate_left else a * F.silu(b)
    if quant_mode == 1:
        return _by_row(y if quant_scale is None else y * wide(quant_scale))
    require(quant_scale is not None, f"{name}: quant_scale must be given with quant_mode 0.")
    y = y / wide(quant_scale)
    y = y if quant_offset is None else y + wide(quant_offset)
    return _int8(y), y.new_empty(0, dtype=torch.float32)


@implements("npu_dynamic_block_quant")
def npu_dynamic_block_quant(
    x, *, min_scale=0.0, round_mode="rint", dst_type=1, row_block_size=1, col_block_size=128,
    dst_type_max=0.0,
):  # fmt: skip
    name = "npu_dynamic_block_quant"
    _check_int8(name, dst_type)
    require(
        row_block_size > 0 and col_block_size > 0 and x.dim() >= 2,
        f"{name}: blocks of {row_block_size} x {col_block_size} of x with {x.dim()} dimensions; sizes must be "
        "positive and dimensions two or more.",
        "VALUE",
    )
    rows, columns = x.shape[-2:]
    pad = (0, -columns % col_block_size, 0, -rows % row_block_size)
    blocks = (
        F.pad(wide(x), pad).unflatten(-1, (-1, col_block_size)).unflatten(-3, (-1, row_block_size))
    )
    scale = (blocks.abs().amax((-3, -1), keepdim=True) / 127).clamp(min=min_scale)
    whole = torch.where(scale == 0, torch.ones_like(scale), scale)
    y = torch.clamp(torch.round(blocks / whole), -127, 127).flatten(-4, -3).flatten(-2)
    return y[..., :rows, :columns].to(torch.int8), scale.squeeze(-1).squeeze(-2).float()


# ---- norm and rotation into caches
def _store_rows(name, caches, rows, index, mode: str) -> None:
    """`rows` (B, 1, S, D) to the slots or positions that `index` names."""
    if mode == "Norm":
        batch, _, length, _ = rows.shape
        require(
            tuple(index.shape) == (batch, length),
            f"{name}: index has shape {list(index.shape)}; with cache_mode Norm it must be {[batch, length]}.",
        )
        batches = torch.arange(batch, device=rows.device)[:, None]
        caches[batches, 0, index.to(torch.int64)] = rows[:, 0].to(caches.dtype)
        return
    flat = rows.reshape(-1, 1, rows.size(-1))
    cache._put(caches, flat.to(caches.dtype), index.flatten(), "Norm", name)


def _kv_parts(name, kv, gamma, cos, sin, epsilon, cache_mode, **refused):
    refuse_given(name, **refused)
    require(
        cache_mode in ("Norm", "PA", "PA_BNSD"),
        f"{name}: cache_mode is {cache_mode}; allowed here: Norm, PA, PA_BNSD.",
        "VALUE",
    )
    require(
        kv.dim() == 4 and kv.size(1) == 1,
        f"{name}: kv has shape {list(kv.shape)}; allowed: (B, 1, S, D).",
    )
    size = gamma.numel()
    require(
        0 < size < kv.size(3), f"{name}: gamma has {size} elements; kv's last size is {kv.size(3)}."
    )
    ckv = _rms(kv[..., :size], gamma, epsilon, name)[0].to(kv.dtype)
    return _rotate(kv[..., size:], cos, sin, "interleave-half"), ckv


def _kv_refused(k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v):
    return {
        "k_rope_scale": k_rope_scale, "c_kv_scale": c_kv_scale, "k_rope_offset": k_rope_offset,
        "c_kv_offset": c_kv_offset, "v": v,
    }  # fmt: skip


def _kv_into(name, k_cache, ckv_cache, k, ckv, index, mode, is_output_kv):
    _store_rows(name, k_cache, k, index, mode)
    _store_rows(name, ckv_cache, ckv, index, mode)
    return (k, ckv) if is_output_kv else (k.new_empty(0), ckv.new_empty(0))


@implements("npu_kv_rmsnorm_rope_cache_v2")
def npu_kv_rmsnorm_rope_cache_v2(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, k_rope_scale=None, c_kv_scale=None,
    k_rope_offset=None, c_kv_offset=None, v=None, epsilon=1e-5, cache_mode="Norm",
    is_output_kv=False, k_cache_dtype=None, ckv_cache_dtype=None,
):  # fmt: skip
    name = "npu_kv_rmsnorm_rope_cache_v2"
    refused = _kv_refused(k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v)
    k, ckv = _kv_parts(name, kv, gamma, cos, sin, epsilon, cache_mode, **refused)
    return _kv_into(name, k_cache, ckv_cache, k, ckv, index, cache_mode, is_output_kv)


@implements("npu_kv_rmsnorm_rope_cache_v2_functional")
def npu_kv_rmsnorm_rope_cache_v2_functional(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, k_rope_scale=None, c_kv_scale=None,
    k_rope_offset=None, c_kv_offset=None, v=None, epsilon=1e-5, cache_mode="Norm",
    is_output_kv=False, k_cache_dtype=None, ckv_cache_dtype=None,
):  # fmt: skip
    """(k, ckv, k_cache, ckv_cache)"""
    name = "npu_kv_rmsnorm_rope_cache_v2_functional"
    refused = _kv_refused(k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v)
    k, ckv = _kv_parts(name, kv, gamma, cos, sin, epsilon, cache_mode, **refused)
    caches = k_cache.clone(), ckv_cache.clone()
    return *_kv_into(name, *caches, k, ckv, index, cache_mode, is_output_kv), *caches


@implements("npu_kv_rmsnorm_rope_cache")
def npu_kv_rmsnorm_rope_cache(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, k_rope_scale=None, c_kv_scale=None,
    k_rope_offset=None, c_kv_offset=None, v=None, epsilon=1e-5, cache_mode="Norm",
    is_output_kv=False,
):  # fmt: skip
    """(k_cache, ckv_cache, k, ckv); the caches are changed in place, as on Ascend."""
    name = "npu_kv_rmsnorm_rope_cache"
    refused = _kv_refused(k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v)
    k, ckv = _kv_parts(name, kv, gamma, cos, sin, epsilon, cache_mode, **refused)
    parts = _kv_into(name, k_cache, ckv_cache, k, ckv, index, cache_mode, is_output_kv)
    return k_cache.view_as(k_cache), ckv_cache.view_as(ckv_cache), *parts


# ---- images and statistics
def _normalised(name, input, mean, variance):
    require(
        input.dim() >= 3 and mean is not None and variance is not None
        and len(mean) == len(variance) == input.size(-3),
        f"{name}: mean and variance must have a number for each of the channels of {list(input.shape)}.",
    )  # fmt: skip
    shape = (-1, 1, 1)
    m = torch.tensor(mean, device=input.device).view(shape)
    v = torch.tensor(variance, device=input.device).view(shape)
    return (wide(input) - m) / v


@implements("image_normalize")
def image_normalize(input, mean, variance, dtype=0):
    require(
        dtype in (0, 1),
        f"image_normalize: dtype is {dtype}; allowed: 0 (float32), 1 (float16).",
        "VALUE",
    )
    return _normalised("image_normalize", input, mean, variance).to(
        torch.float16 if dtype == 1 else torch.float32
    )


@implements("image_normalize_")
def image_normalize_(input, mean, variance, dtype=0):
    return input.copy_(_normalised("image_normalize_", input, mean, variance))


@implements("img_to_tensor")
def img_to_tensor(input):
    """(N, H, W, C) bytes to (N, C, H, W) numbers"""
    require(
        input.dim() == 4 and input.dtype == torch.uint8,
        f"img_to_tensor: input is {input.dtype} of shape {list(input.shape)}; allowed: uint8 (N, H, W, C).",
    )
    return (input.permute(0, 3, 1, 2).float() / 255).contiguous()


@implements("batch_norm_reduce")
def batch_norm_reduce(input, eps):
    require(
        input.dim() >= 2,
        f"batch_norm_reduce: input has {input.dim()} dimensions; allowed: 2 or more.",
    )
    dims = [0, *range(2, input.dim())]
    x = wide(input)
    return x.sum(dims).float(), (x * x).sum(dims).float()


# ---- dropout with a byte per element
@implements("_dropout_with_byte_mask")
def _dropout_with_byte_mask(input, p):
    activation._check_p("_dropout_with_byte_mask", p)
    keep = torch.rand(input.shape, device=input.device) >= p
    return (wide(input) * keep / (1 - p)).to(input.dtype), keep.to(torch.uint8)


@implements("_dropout_with_byte_mask_backward")
def _dropout_with_byte_mask_backward(grad_output, mask, p):
    activation._check_p("_dropout_with_byte_mask_backward", p)
    return (wide(grad_output) * mask / (1 - p)).to(grad_output.dtype)


@implements("dropout_with_byte_mask")
def dropout_with_byte_mask(input, p, train):
    return _dropout_with_byte_mask(input, p)[0] if train and p > 0 else input.clone()


@implements("npu_dropout_with_add_softmax_backward")
def npu_dropout_with_add_softmax_backward(grad, mask, softmax_out, alpha, prob, dim):
    """(gradient of the input that alpha multiplies, of x1)"""
    activation._check_p("npu_dropout_with_add_softmax_backward", prob)
    s = wide(softmax_out)
    g = wide(grad) * activation._unpack(mask, grad) / (1 - prob)
    d = s * (g - (g * s).sum(dim, keepdim=True))
    return (d * alpha).to(grad.dtype), d.to(grad.dtype)
