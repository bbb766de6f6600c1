# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings whose results are quantised and written into caches."""

import torch
from table import add, int8, ints, rand

ONE = (torch.float32,)


def coarse(*size):
    """Quarters between -1.5 and 1.5: every dtype holds the products of two of them."""
    return torch.round(rand(*size, low=-1.5, high=1.5) * 4) / 4


def turned(x, cos, sin):
    """Half rotation of the last dimension: element i is paired with element i + D / 2."""
    half = x.shape[-1] // 2
    out = torch.empty_like(x)
    for i in range(half):
        a, b = x[..., i], x[..., i + half]
        out[..., i] = a * cos[..., i] - b * sin[..., i]
        out[..., i + half] = b * cos[..., i + half] + a * sin[..., i + half]
    return out


def quantised(x, scale, offset):
    exact = x * scale.double() + (0 if offset is None else offset.double())
    return torch.clamp(torch.round(exact), -128, 127).to(torch.int8)


def rope_quant(
    x, cos, sin, k_cache, v_cache, indices, scale_k, scale_v, size_splits, offset_k=None,
    offset_v=None, quant_mode=0, input_layout="BSND", kv_output=False, cache_mode="contiguous",
):  # fmt: skip
    size = cos.shape[-1]
    q, k, v = (
        part.unflatten(-1, (part.shape[-1] // size, size))
        for part in torch.split(x, list(size_splits), -1)
    )
    if x.dim() == 2:
        cos, sin = cos[:, None], sin[:, None]
    q, k = turned(q, cos, sin), turned(k, cos, sin)
    k_cache, v_cache = k_cache.clone(), v_cache.clone()
    for cache, rows in (
        (k_cache, quantised(k, scale_k, offset_k)),
        (v_cache, quantised(v, scale_v, offset_v)),
    ):
        if cache_mode == "page":
            flat = cache.reshape(-1, *cache.shape[2:])
            for row, at in zip(rows.reshape(-1, *rows.shape[-2:]), indices.tolist(), strict=True):
                flat[at] = row
            cache.copy_(flat.reshape(cache.shape))
            continue
        rows = rows if x.dim() == 3 else rows[:, None]
        for b, at in enumerate(indices.tolist()):
            cache[b, at : at + rows.shape[1]] = rows[b]
    none = torch.zeros(0, dtype=torch.float64)
    return q, k if kv_output else none, v if kv_output else none, k_cache, v_cache


def dequant_rope_quant(
    x, cos, *rest, weight_scale=None, activation_scale=None, bias=None, **kwargs
):
    x = x.double()
    if weight_scale is not None:
        if bias is not None and bias.dtype == torch.int32:
            x = x + bias
        x = x * weight_scale.double()
        if activation_scale is not None:
            x = x * activation_scale.double().reshape(*x.shape[:-1], 1)
        if bias is not None and bias.dtype != torch.int32:
            x = x + bias.double()
    return rope_quant(x, cos, *rest, **kwargs)


def cache(*size):
    return ints(-100, 100, *size, dtype=torch.int8)


def rope_case(op, reference, label, *, rows, heads=(3, 1), page=False, x=None, **kwargs):
    n, nk = heads
    d, splits = 8, [n * 8, nk * 8, nk * 8]
    x = coarse(*rows, sum(splits)) if x is None else x
    angles = [coarse(*rows, 1, d) if len(rows) == 2 else coarse(*rows, d) for _ in range(2)]
    count = 1
    for size in rows:
        count *= size
    if page:
        caches = [cache(3, 4, nk, d) for _ in range(2)]
        indices = torch.tensor([7, 0, 11, 4, 2, 9][:count], dtype=torch.int32)
        kwargs["cache_mode"] = "page"
    else:
        caches = [cache(rows[0], 6, nk, d) for _ in range(2)]
        indices = torch.tensor([2, 0, 3][: rows[0]], dtype=torch.int32)
    scales = [torch.tensor([4.0, 8, 16, 0.5, 64, -2, 1, 32]).double() for _ in range(2)]
    add(op, reference, x, *angles, *caches, indices, *scales, splits, label=label, keep=(6, 7),
        **kwargs)  # fmt: skip


OFFSETS = {
    "offset_k": torch.tensor([0.0, 1, -2, 3, 0, 5, -6, 7]),
    "offset_v": torch.tensor([1.0, 0, 0, -3, 9, 0, 6, -7]),
}
for label, rows, options in (
    ("contiguous", (2, 3), {}),
    ("heads", (2, 2), {"heads": (4, 2), "kv_output": True, **OFFSETS}),
    ("decode", (3,), {"kv_output": True}),
    ("page", (2, 3), {"page": True, **OFFSETS}),
    ("page-decode", (3,), {"page": True, "kv_output": True}),
    ("one-token", (1, 1), {"heads": (1, 1), "kv_output": True}),
    ("no-rows", (0, 3), {"kv_output": True}),
):
    rope_case("npu_rope_quant_kvcache", rope_quant, label, rows=rows, **options)

WEIGHT = torch.tensor([0.25, 0.125, 0.5, 0.25] * 10)
for label, rows, options in (
    ("scales", (2, 3), {"activation_scale": torch.tensor([1, 0.5, 2, 1, 1, 0.25])}),
    ("int-bias", (2, 2), {"bias": ints(-4, 5, 40, dtype=torch.int32), "kv_output": True}),
    ("float-bias", (3,), {"bias": torch.arange(40).float() / 16 - 1, "kv_output": True, **OFFSETS}),
    ("page", (2, 3), {"page": True, "activation_scale": torch.ones(6) / 2}),
):
    rope_case("npu_dequant_rope_quant_kvcache", dequant_rope_quant, label, rows=rows,
              x=ints(-6, 7, *rows, 40, dtype=torch.int32), weight_scale=WEIGHT, **options)  # fmt: skip
rope_case("npu_dequant_rope_quant_kvcache", dequant_rope_quant, "sixteen-bits", rows=(2, 3),
          x=coarse(2, 3, 40).half())  # fmt: skip


# ---- query, key and value in one product


def nz_written(cache, rows, index):
    """rows (T, N, D) at flat slots of a cache (blocks, N * D / c0, block_size, c0)."""
    out = cache.clone()
    size, width = cache.shape[2], cache.shape[3]
    for row, slot in zip(rows, index.tolist(), strict=True):
        if slot < 0:
            continue
        for place, value in enumerate(row.flatten()):
            out[slot // size, place // width, slot % size, place % width] = value
    return out


def qkv_cache(
    qkv, q_gamma, k_gamma, cos, sin, index, q_out, k_cache, v_cache, qkv_size, head_nums,
    k_scale=None, v_scale=None, k_offset=None, v_offset=None, epsilon=1e-6, cache_mode="PA_NZ",
    is_output_qkv=False, functional=True,
):  # fmt: skip
    size = qkv_size[3]
    parts = torch.split(qkv.unflatten(1, (sum(head_nums), size)), list(head_nums), 1)

    def normed(x, gamma):
        n = x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * gamma
        return turned(n, cos[:, None], sin[:, None])

    q, k, v = normed(parts[0], q_gamma), normed(parts[1], k_gamma), parts[2]
    written = []
    for stored, rows, scale, offset in (
        (k_cache, k, k_scale, k_offset),
        (v_cache, v, v_scale, v_offset),
    ):
        if scale is None:
            written.append(nz_written(stored, rows, index))
            continue
        rows = rows / scale.double() + (0 if offset is None else offset.double())
        written.append(int8(nz_written(stored.double(), rows, index)))
    out = [x.flatten(1) for x in (q, k, v)]
    first = out if is_output_qkv else [torch.zeros(0, dtype=torch.float64)] * 3
    return (*first, out[0], *written) if functional else tuple(first)


def in_place(*args, **kwargs):
    return qkv_cache(*args, functional=False, **kwargs)


def qkv_arguments(batch, length, heads, size=16, quantised=False):
    tokens = batch * length
    width = 32 if quantised else 16
    made = cache if quantised else rand
    caches = [made(2, n * size // width, 4, width) for n in heads[1:]]
    index = torch.tensor([5, -1, 0, 7, 2, 6][:tokens])
    return (
        rand(tokens, sum(heads) * size), rand(size), rand(size), rand(tokens, size),
        rand(tokens, size), index, rand(tokens, heads[0] * size), *caches,
        [batch, length, sum(heads), size], list(heads),
    )  # fmt: skip


for label, shape, options in (
    ("plain", (2, 3, (4, 2, 2)), {}),
    ("qkv", (2, 2, (2, 1, 1)), {"is_output_qkv": True}),
    ("epsilon", (1, 1, (1, 1, 1)), {"is_output_qkv": True, "epsilon": 0.5}),
    ("no-rows", (0, 3, (2, 1, 1)), {"is_output_qkv": True}),
):
    add("npu_qkv_rms_norm_rope_cache_functional", qkv_cache, *qkv_arguments(*shape), label=label,
        **options)  # fmt: skip
QUANTISED = {
    "k_scale": torch.rand(2, 16, generator=torch.Generator().manual_seed(1)) / 40 + 0.01,
    "v_scale": torch.rand(2, 16, generator=torch.Generator().manual_seed(2)) / 40 + 0.01,
}
for label, options in (
    ("int8", {}),
    ("int8-offsets", {"k_offset": torch.full((2, 16), 3.0), "v_offset": torch.full((2, 16), -5.0)}),
):
    add("npu_qkv_rms_norm_rope_cache_functional", qkv_cache,
        *qkv_arguments(2, 3, (4, 2, 2), quantised=True), label=label, dtypes=ONE,
        is_output_qkv=True, **QUANTISED, **options)  # fmt: skip
add("npu_qkv_rms_norm_rope_cache", in_place, *qkv_arguments(2, 3, (4, 2, 2)), is_output_qkv=True)
