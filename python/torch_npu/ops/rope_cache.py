# SPDX-License-Identifier: Apache-2.0
"""Query, key and value split, rotated, and written into caches, also quantised."""

import torch

from torch_npu.ops import cache, implements
from torch_npu.ops._check import floating, require, wide, within
from torch_npu.ops.norm import _rms
from torch_npu.ops.rotary import _rotate


def _heads(name, x, sizes, head: int):
    """q, k, v (..., heads, D) of x (..., H)."""
    require(
        len(sizes) == 3 and sum(sizes) == x.size(-1) and all(s % head == 0 for s in sizes),
        f"{name}: the parts of the last size {x.size(-1)} are {list(sizes)}; they must be three "
        f"multiples of the head's size {head} that add up to it.",
    )
    return [part.unflatten(-1, (-1, head)) for part in x.split(list(sizes), -1)]


def _cosines(name, x, cos, sin):
    """cos, sin that broadcast over the heads of x (..., H)."""
    floating(name, cos=cos, sin=sin)
    require(
        cos.shape == sin.shape and cos.numel() == x.shape[:-1].numel() * cos.size(-1),
        f"{name}: cos has shape {list(cos.shape)} and sin {list(sin.shape)}; both must have a row for "
        f"each of the {list(x.shape[:-1])} tokens.",
    )
    shape = (*x.shape[:-1], 1, cos.size(-1))
    return wide(cos).reshape(shape), wide(sin).reshape(shape)


def _int8(y) -> torch.Tensor:
    return torch.clamp(torch.round(y), -128, 127).to(torch.int8)


def _of_heads(parameter, x):
    """A scale or offset of D, or heads x D numbers, for x (..., heads, D)."""
    p = wide(parameter)
    return p if p.numel() in (1, x.size(-1)) else p.reshape(x.shape[-2:])


def _check_cache(name, argument, store, x) -> None:
    require(
        store.dtype == torch.int8,
        f"{name}: {argument} is {store.dtype}; allowed: torch.int8.",
        "TYPE",
    )
    require(
        store.dim() == 4 and store.shape[2:] == x.shape[-2:],
        f"{name}: {argument} has shape {list(store.shape)}; its last two sizes must be {list(x.shape[-2:])}.",
    )


def _store(name, store, values, indices, mode: str) -> None:
    """`values` (B, S, heads, D) into rows of a cache: from indices[b] on, or at flat rows."""
    if mode == "page":
        cache._put(store, values.flatten(0, 1), indices, "Norm", name)
        return
    batch, length = values.shape[:2]
    rows = indices.to(torch.int64)[:, None] + torch.arange(length, device=values.device)
    store.index_put_((torch.arange(batch, device=values.device)[:, None], rows), values)


def _check_places(name, stores, indices, batch, length, mode) -> None:
    tokens = batch * length if mode == "page" else batch
    require(
        indices.dim() == 1 and indices.numel() == tokens,
        f"{name}: indices has shape {list(indices.shape)}; with cache_mode {mode} it must be [{tokens}].",
    )
    for store in stores:
        if mode == "page":
            within(name, "indices", indices, -1, store.size(0) * store.size(1) - 1)
            continue
        require(
            store.size(0) >= batch,
            f"{name}: a cache has {store.size(0)} rows for a batch of {batch}; give one for each.",
        )
        within(name, "indices", indices, 0, store.size(1) - length)


def _rotated_into_caches(
    name, x, cos, sin, k_cache, v_cache, indices, scale_k, scale_v, size_splits, offset_k, offset_v,
    quant_mode, input_layout, kv_output, cache_mode, dtype,
):  # fmt: skip
    require(x.dim() in (2, 3), f"{name}: x has {x.dim()} dimensions; allowed: 2, 3.")
    require(quant_mode == 0, f"{name}: quant_mode is {quant_mode}; allowed: 0 (static).", "VALUE")
    require(
        input_layout == "BSND", f"{name}: input_layout is {input_layout}; allowed: BSND.", "VALUE"
    )
    require(
        cache_mode in ("contiguous", "page"),
        f"{name}: cache_mode is {cache_mode}; allowed: contiguous, page.",
        "VALUE",
    )
    q, k, v = _heads(name, x, size_splits, cos.size(-1))
    cosines = _cosines(name, x, cos, sin)
    _check_cache(name, "k_cache", k_cache, k)
    _check_cache(name, "v_cache", v_cache, v)
    batch, length = x.shape[:2] if x.dim() == 3 else (x.size(0), 1)
    _check_places(name, (k_cache, v_cache), indices, batch, length, cache_mode)
    q, k = (_rotate(part, *cosines, "half") for part in (q, k))
    for store, part, scale, offset in (
        (k_cache, k, scale_k, offset_k),
        (v_cache, v, scale_v, offset_v),
    ):
        y = part * _of_heads(scale, part)
        y = y if offset is None else y + _of_heads(offset, part)
        _store(name, store, _int8(y).view(batch, length, *part.shape[-2:]), indices, cache_mode)
    parts = [p.to(dtype) if kv_output else p.new_empty(0, dtype=dtype) for p in (k, v)]
    return q.to(dtype), *parts, k_cache.view_as(k_cache), v_cache.view_as(v_cache)


@implements("npu_rope_quant_kvcache")
def npu_rope_quant_kvcache(
    x, cos, sin, k_cache, v_cache, indices, scale_k, scale_v, size_splits, *, offset_k=None,
    offset_v=None, quant_mode=0, input_layout="BSND", kv_output=False, cache_mode="contiguous",
):  # fmt: skip
    """(q, k, v, k_cache, v_cache); the caches are changed in place, as on Ascend."""
    name = "npu_rope_quant_kvcache"
    floating(name, x=x)
    return _rotated_into_caches(
        name, wide(x), cos, sin, k_cache, v_cache, indices, scale_k, scale_v, size_splits, offset_k,
        offset_v, quant_mode, input_layout, kv_output, cache_mode, x.dtype,
    )  # fmt: skip


def _dequantised(name, x, weight_scale, activation_scale, bias, dtype):
    """Of a product's int32 numbers, in the dtype of the rotation."""
    require(weight_scale is not None, f"{name}: weight_scale must be given with x of torch.int32.")
    late = bias is not None and bias.is_floating_point()
    y = x.double() if bias is None or late else x.double() + bias.double()
    y = y * weight_scale.double()
    if activation_scale is not None:
        require(
            activation_scale.numel() == x.shape[:-1].numel(),
            f"{name}: activation_scale has shape {list(activation_scale.shape)}; it must have a "
            f"number for each of the {list(x.shape[:-1])} tokens.",
        )
        y = y * activation_scale.double().reshape(*x.shape[:-1], 1)
    return (y + bias.double() if late else y).to(dtype)


@implements("npu_dequant_rope_quant_kvcache")
def npu_dequant_rope_quant_kvcache(
    x, cos, sin, k_cache, v_cache, indices, scale_k, scale_v, size_splits, *, offset_k=None,
    offset_v=None, weight_scale=None, activation_scale=None, bias=None, quant_mode=0,
    input_layout="BSND", kv_output=False, cache_mode="contiguous",
):  # fmt: skip
    """(q, k, v, k_cache, v_cache); the caches are changed in place, as on Ascend."""
    name = "npu_dequant_rope_quant_kvcache"
    require(
        x.dtype == torch.int32 or x.is_floating_point(),
        f"{name}: x dtype should be Int32, but got {x.dtype}; a floating x is taken as it is.",
        "TYPE",
    )
    if x.dtype == torch.int32:
        x = _dequantised(name, x, weight_scale, activation_scale, bias, cos.dtype)
    return _rotated_into_caches(
        name, wide(x), cos, sin, k_cache, v_cache, indices, scale_k, scale_v, size_splits, offset_k,
        offset_v, quant_mode, input_layout, kv_output, cache_mode, cos.dtype,
    )  # fmt: skip


# ---- with a norm of query and key
def _check_nz(name, argument, store, part, quantised, dtype) -> None:
    """A cache (blocks, heads D / c0, block size, c0)."""
    wanted = torch.int8 if quantised else dtype
    require(
        store.dtype == wanted,
        f"{name}: {argument} is {store.dtype}; it must be {wanted}.",
        "TYPE",
    )
    size = part.shape[-2:].numel()
    require(
        store.dim() == 4 and store.size(1) * store.size(3) == size,
        f"{name}: {argument} has shape {list(store.shape)}; its second and last sizes must multiply to {size}.",
    )


@implements("npu_qkv_rms_norm_rope_cache")
def npu_qkv_rms_norm_rope_cache(
    qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums, *,
    k_scale=None, v_scale=None, k_offset=None, v_offset=None, epsilon=1e-6, cache_mode="PA_NZ",
    is_output_qkv=False,
):  # fmt: skip
    """(q, k, v) before quantisation; q_out and the caches are changed in place."""
    name = "npu_qkv_rms_norm_rope_cache"
    floating(name, qkv=qkv, q_gamma=q_gamma, k_gamma=k_gamma)
    require(cache_mode == "PA_NZ", f"{name}: cache_mode is {cache_mode}; allowed: PA_NZ.", "VALUE")
    batch, length, heads, head = qkv_size
    require(
        list(qkv.shape) == [batch * length, heads * head] and sum(head_nums) == heads,
        f"{name}: qkv has shape {list(qkv.shape)}, qkv_size is {list(qkv_size)} and head_nums "
        f"{list(head_nums)}; qkv must be [B * S, N * D], and head_nums must add up to N.",
    )
    q, k, v = _heads(name, wide(qkv), [n * head for n in head_nums], head)
    cosines = _cosines(name, qkv, cos, sin)
    require(
        cos.size(-1) == head == q_gamma.numel() == k_gamma.numel(),
        f"{name}: the last size of cos is {cos.size(-1)}, q_gamma has {q_gamma.numel()} numbers and "
        f"k_gamma {k_gamma.numel()}; qkv_size needs {head} of each.",
    )
    require(
        q_out.dtype == qkv.dtype and q_out.numel() == q.numel(),
        f"{name}: q_out is {q_out.dtype} {list(q_out.shape)}; it must be {qkv.dtype} [{q.size(0)}, "
        f"{head_nums[0] * head}].",
    )
    parts = (("k_cache", k_cache, k, k_scale), ("v_cache", v_cache, v, v_scale))
    for argument, store, part, scale in parts:
        _check_nz(name, argument, store, part, scale is not None, qkv.dtype)
        within(name, "index", index, -1, store.size(0) * store.size(2) - 1)
    require(
        index.numel() == qkv.size(0),
        f"{name}: index has {index.numel()} numbers for {qkv.size(0)} tokens; give as many.",
    )
    q, k = (
        _rotate(_rms(part, gamma, epsilon, name)[0], *cosines, "half")
        for part, gamma in ((q, wide(q_gamma)), (k, wide(k_gamma)))
    )
    q_out.copy_(q.to(qkv.dtype).view(q_out.shape))
    for store, part, scale, offset in (
        (k_cache, k, k_scale, k_offset),
        (v_cache, v, v_scale, v_offset),
    ):
        values = part.to(qkv.dtype)
        if scale is not None:
            y = part / _of_heads(scale, part)
            values = _int8(y if offset is None else y + _of_heads(offset, part))
        cache._put(store, values, index, "PA_NZ", name)
    if not is_output_qkv:
        return tuple(qkv.new_empty(0) for _ in range(3))
    return tuple(part.flatten(-2).to(qkv.dtype) for part in (q, k, v))


@implements("npu_qkv_rms_norm_rope_cache_functional")
def npu_qkv_rms_norm_rope_cache_functional(
    qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums, *,
    k_scale=None, v_scale=None, k_offset=None, v_offset=None, epsilon=1e-6, cache_mode="PA_NZ",
    is_output_qkv=False,
):  # fmt: skip
    """(q, k, v, q_out, k_cache, v_cache)"""
    copies = q_out.clone(), k_cache.clone(), v_cache.clone()
    parts = npu_qkv_rms_norm_rope_cache(
        qkv, q_gamma, k_gamma, cos, sin, index, *copies, qkv_size, head_nums, k_scale=k_scale,
        v_scale=v_scale, k_offset=k_offset, v_offset=v_offset, epsilon=epsilon,
        cache_mode=cache_mode, is_output_qkv=is_output_qkv,
    )  # fmt: skip
    return *parts, *copies
