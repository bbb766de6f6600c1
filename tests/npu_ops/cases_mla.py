# SPDX-License-Identifier: Apache-2.0
"""The MLA prologue: queries and the latent key of multi-head latent attention, written into caches."""

import torch
from table import add, int8, ints, rand

ONE = (torch.float32,)


def norm(x, gamma, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * gamma


def rope(x, sin, cos):
    """Even elements, then odd ones, then the rotation of halves: the result stays regrouped."""
    even, odd = x[..., 0::2], x[..., 1::2]
    half = x.shape[-1] // 2
    first = even * cos[..., :half] - odd * sin[..., :half]
    second = odd * cos[..., half:] + even * sin[..., half:]
    return torch.cat((first, second), -1)


def per_row(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale).clamp(-128, 127), scale


def linear(x, scale_x, weight, scale_w):
    y = x.double() @ weight.double()
    y = y if scale_x is None else y * scale_x.double().reshape(-1, 1)
    return y if scale_w is None else y * scale_w.double().reshape(1, -1)


def put(cache, rows, slots, mode):
    """rows (T, D) at slots; -1: nowhere. NZ: a block is (D / c0, block_size, c0)."""
    exact = cache.double().clone()
    flat = exact.reshape(-1)
    block_size, D = cache.shape[1], cache.shape[-1]
    for t, slot in enumerate(slots):
        if slot < 0:
            continue
        for d in range(D):
            if mode == "PA_NZ":
                c0 = 16 if cache.dtype != torch.int8 else 32
                block, row = divmod(slot, block_size)
                at = ((block * (D // c0) + d // c0) * block_size + row) * c0 + d % c0
            else:
                at = slot * D + d
            flat[at] = rows[t, d]
    out = flat.reshape(cache.shape)
    return int8(out) if cache.dtype == torch.int8 else out


def prolog(x, wdq, wuq, wuk, wdkv, gamma_q, gamma_kv, sin, cos, kv_cache, kr_cache, *, cache_index=None, dequant_scale_x=None,
           dequant_scale_w_dq=None, dequant_scale_w_uq_qr=None, dequant_scale_w_dkv_kr=None, quant_scale_ckv=None,
           quant_scale_ckr=None, smooth_scales_cq=None, rmsnorm_epsilon_cq=1e-5, rmsnorm_epsilon_ckv=1e-5, cache_mode="PA_BSND",
           query_norm_flag=False, weight_quant_mode=0, kv_cache_quant_mode=0, query_quant_mode=0, qc_qr_scale=1.0,
           kc_scale=1.0):  # fmt: skip
    lead, (heads, D, _) = x.shape[:-1], wuk.shape
    tokens = x.reshape(-1, x.shape[-1])
    sin, cos = sin.reshape(-1, sin.shape[-1]), cos.reshape(-1, cos.shape[-1])
    empty = torch.empty(0, dtype=torch.float64)
    cq = linear(tokens, dequant_scale_x, wdq, dequant_scale_w_dq)
    cq = norm(cq, gamma_q, rmsnorm_epsilon_cq) * qc_qr_scale
    cq_out, cq_scale = cq, None
    if weight_quant_mode:
        smooth = 1 if smooth_scales_cq is None else smooth_scales_cq.double()
        exact = cq * smooth
        cq, cq_scale = per_row(exact)
        cq_out = int8(exact / cq_scale)
    z = linear(cq, cq_scale, wuq, dequant_scale_w_uq_qr).reshape(
        len(tokens), heads, wuq.shape[1] // heads
    )
    q = torch.stack([z[:, n, :D] @ wuk[n] for n in range(heads)], 1)
    q_rope = rope(z[..., D:], sin[:, None], cos[:, None])
    scale_q = empty
    if query_quant_mode:
        _, scale_q = per_row(q)
        q = int8(q / scale_q)
        q_rope = q_rope * quant_scale_ckv.double().reshape(()) / scale_q
    latent = linear(tokens, dequant_scale_x, wdkv, dequant_scale_w_dkv_kr)
    size = latent.shape[1] - sin.shape[1]
    ckv = norm(latent[:, :size], gamma_kv, rmsnorm_epsilon_ckv) * kc_scale
    kr = rope(latent[:, size:], sin, cos)
    if kv_cache_quant_mode:
        ckv = ckv * quant_scale_ckv.double().reshape(1, -1)
        kr = kr if kv_cache_quant_mode == 1 else kr * quant_scale_ckr.double().reshape(1, -1)
    if cache_mode == "PA_BLK_BSND":
        per = kv_cache.shape[1]
        places = [(b, s) for b in range(x.shape[0]) for s in range(x.shape[1])]
        slots = [int(cache_index[b, s // per]) * per + s % per for b, s in places]
        cache_mode = "PA_BSND"
    elif cache_mode in ("BSND", "TND"):
        slots = list(range(len(tokens)))
    else:
        slots = cache_index.flatten().tolist()
    caches = put(kv_cache, ckv, slots, cache_mode), put(kr_cache, kr, slots, cache_mode)

    def shaped(t):
        out = t.reshape(*lead, *t.shape[1:])
        if hasattr(t, "exact"):
            out.exact = t.exact.reshape(out.shape)
        return out

    return (
        shaped(q),
        shaped(q_rope),
        scale_q.double(),
        shaped(cq_out) if query_norm_flag else empty,
        cq_scale if query_norm_flag and cq_scale is not None else empty,
        *caches,
    )


def prolog_v2(*args, **rest):
    """v1 and v2 have no modes: the dtypes say."""
    tensors, index, caches = args[:9], args[9], args[10:]
    wuq, x = args[2], args[0]
    mode = 2 if x.dtype == torch.int8 else 1 if wuq.dtype == torch.int8 else 0
    ckr, ckv = rest.get("quant_scale_ckr"), rest.get("quant_scale_ckv")
    kept = 0 if ckv is None else 1 if ckr is None else 2
    query = int(mode == 2 and kept == 1)
    found = prolog(*tensors, *caches, cache_index=index, weight_quant_mode=mode, kv_cache_quant_mode=kept,
                   query_quant_mode=query, **rest)  # fmt: skip
    q, q_rope, scale_q, _, _, kv, kr = found
    return q, q_rope, kv, kr, scale_q if query else None


T, HE, HCQ, HEADS, D, DR, HCKV, SIZE = 4, 16, 8, 2, 4, 8, 16, 4
FLOATS = [
    rand(*s, low=-0.5, high=0.5)
    for s in ((HE, HCQ), (HCQ, HEADS * (D + DR)), (HEADS, D, HCKV), (HE, HCKV + DR))
]
GAMMAS = (rand(HCQ, low=0.5, high=1.5), rand(HCKV, low=0.5, high=1.5))
ANGLES = (rand(T, DR, low=-1, high=1), rand(T, DR, low=-1, high=1))
CACHES = (rand(3, SIZE, 1, HCKV), rand(3, SIZE, 1, DR))
SLOTS = torch.tensor([5, 0, 11, 6])
TOKENS = rand(T, HE, low=-1, high=1)
COMMON = (TOKENS, *FLOATS, *GAMMAS, *ANGLES)


def in_batches(*sizes):
    return (TOKENS.reshape(*sizes, HE), *FLOATS, *GAMMAS, *(a.reshape(*sizes, DR) for a in ANGLES))


V1, V2, V3 = "npu_mla_prolog", "npu_mla_prolog_v2", "npu_mla_prolog_v3_functional"
for _op, _count in ((V1, 4), (V2, 5)):

    def _reference(*args, count=_count, **rest):
        return prolog_v2(*args, **rest)[:count]

    add(_op, _reference, *COMMON, SLOTS, *CACHES)
    add(_op, _reference, *in_batches(2, 2), SLOTS.reshape(2, 2), *CACHES, label="batches")
    add(_op, _reference, *COMMON, torch.tensor([5, -1, 11, -1]), *CACHES, label="skipped", rmsnorm_epsilon_cq=1e-2,
        rmsnorm_epsilon_ckv=1e-3)  # fmt: skip
    add(_op, _reference, *(x[:0] if x is TOKENS or any(x is a for a in ANGLES) else x for x in COMMON), SLOTS[:0], *CACHES,
        label="no-tokens")  # fmt: skip
    add(_op, _reference, *COMMON, SLOTS, rand(3, SIZE, 1, HCKV), rand(3, SIZE, 1, 16)[..., :DR].contiguous(), label="caches")  # fmt: skip

_wide = [rand(HE, HCKV + 16, low=-0.5, high=0.5), rand(HCQ, HEADS * (D + 16), low=-0.5, high=0.5)]
_nz = (
    TOKENS,
    FLOATS[0],
    _wide[1],
    FLOATS[2],
    _wide[0],
    *GAMMAS,
    rand(T, 16, low=-1, high=1),
    rand(T, 16, low=-1, high=1),
)
add(V1, lambda *a, **r: prolog_v2(*a, **r)[:4], *_nz, SLOTS, rand(3, SIZE, 1, HCKV), rand(3, SIZE, 1, 16), cache_mode="PA_NZ",
    label="nz")  # fmt: skip

# Weights of int8: the product of the query alone, then all of them.
W8 = [ints(-127, 128, *w.shape, dtype=torch.int8) for w in FLOATS]
SCALE_W = [rand(1, n, low=0.5, high=1).float() / 100 for n in (HCQ, HEADS * (D + DR), HCKV + DR)]
X8, SCALE_X = ints(-127, 128, T, HE, dtype=torch.int8), rand(T, 1, low=0.5, high=1).float() / 100
ONE_WEIGHT = (TOKENS, FLOATS[0], W8[1], FLOATS[2], FLOATS[3], *GAMMAS, *ANGLES)
ALL_WEIGHTS = (X8, W8[0], W8[1], FLOATS[2], W8[3], *GAMMAS, *ANGLES)
OF_ONE = {"dequant_scale_w_uq_qr": SCALE_W[1]}
OF_ALL = {"dequant_scale_x": SCALE_X, "dequant_scale_w_dq": SCALE_W[0], "dequant_scale_w_uq_qr": SCALE_W[1],
          "dequant_scale_w_dkv_kr": SCALE_W[2]}  # fmt: skip
CACHES8 = (
    ints(-9, 9, 3, SIZE, 1, HCKV, dtype=torch.int8),
    ints(-9, 9, 3, SIZE, 1, DR, dtype=torch.int8),
)
PER_TENSOR = {"quant_scale_ckv": torch.tensor([30.0])}
PER_CHANNEL = {"quant_scale_ckv": rand(1, HCKV, low=20, high=40).float(), "quant_scale_ckr": rand(1, DR, low=20, high=40).float()}  # fmt: skip
SMOOTH = {"smooth_scales_cq": rand(1, HCQ, low=0.5, high=1.5).float()}
# A row quantised on the fly may round one element the other way.
for _label, _tensors, _caches, _rest in (
    ("weight-int8", ONE_WEIGHT, CACHES, {**OF_ONE, **SMOOTH}),
    ("weight-int8-channel", ONE_WEIGHT, CACHES8, {**OF_ONE, **PER_CHANNEL}),
    ("all-int8", ALL_WEIGHTS, CACHES, OF_ALL),
    ("all-int8-tensor", ALL_WEIGHTS, (CACHES8[0], CACHES[1]), {**OF_ALL, **PER_TENSOR}),
):
    add(
        V2, prolog_v2, *_tensors, SLOTS, *_caches, label=_label, dtypes=ONE, tolerance=1e-2, **_rest
    )

add(
    V3,
    prolog,
    *COMMON,
    *CACHES,
    cache_index=SLOTS,
    query_norm_flag=True,
    qc_qr_scale=1.5,
    kc_scale=0.5,
)
add(
    V3,
    prolog,
    *in_batches(2, 2),
    *CACHES,
    cache_index=torch.tensor([[2], [0]]),
    cache_mode="PA_BLK_BSND",
    label="blocks",
)
add(V3, prolog, *COMMON, rand(T, 1, HCKV), rand(T, 1, DR), cache_mode="TND", label="tnd")
add(
    V3,
    prolog,
    *in_batches(2, 2),
    rand(2, 2, 1, HCKV),
    rand(2, 2, 1, DR),
    cache_mode="BSND",
    label="bsnd",
)
add(V3, prolog, *ONE_WEIGHT, *CACHES8, cache_index=SLOTS, weight_quant_mode=1, kv_cache_quant_mode=2, query_norm_flag=True,
    label="weight-int8", dtypes=ONE, tolerance=1e-2, **OF_ONE, **PER_CHANNEL)  # fmt: skip
add(V3, prolog, *ALL_WEIGHTS, CACHES8[0], CACHES[1], cache_index=SLOTS, weight_quant_mode=2, kv_cache_quant_mode=1,
    query_quant_mode=1, label="all-int8", dtypes=ONE, tolerance=1e-2, **OF_ALL, **PER_TENSOR)  # fmt: skip


def in_place(*args, **options):
    *found, kv_cache, kr_cache = prolog(*args, **options)
    for cache, after in zip(args[9:11], (kv_cache, kr_cache), strict=True):
        cache.copy_(after)
    return tuple(found)


add(
    "npu_mla_prolog_v3",
    in_place,
    *COMMON,
    *CACHES,
    cache_index=SLOTS,
    query_norm_flag=True,
    writes=(9, 10),
)
add("npu_mla_prolog_v3", in_place, *in_batches(2, 2), *CACHES, cache_index=torch.tensor([[2], [0]]),
    cache_mode="PA_BLK_BSND", label="blocks", writes=(9, 10))  # fmt: skip
