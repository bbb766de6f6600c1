# SPDX-License-Identifier: Apache-2.0
"""Chains of operators that Ascend runs as one."""

import torch
import torch.nn.functional as F
from table import add, int8, ints, rand

ONE = (torch.float32,)


def by_row(y):
    scale = y.abs().amax(-1, keepdim=True) / 127
    return int8(y / scale), scale.squeeze(-1)


# ---- products
AFTER = {
    "": lambda y, z: y, "relu": lambda y, z: y.clamp(min=0), "gelu_erf": lambda y, z: F.gelu(y),
    "gelu_tanh": lambda y, z: F.gelu(y, approximate="tanh"), "add": lambda y, z: y + z, "mul": lambda y, z: y * z,
    "16cast32": lambda y, z: y,
}  # fmt: skip


def fused(a, b, *, bias=None, x3=None, fused_op_type=""):
    y = a @ b
    return AFTER[fused_op_type](y if bias is None else y + bias, x3)


for kind in AFTER:
    third = {"x3": rand(3, 5)} if kind in ("add", "mul") else {}
    add(
        "npu_fused_matmul",
        fused,
        rand(3, 4),
        rand(4, 5),
        bias=rand(5),
        fused_op_type=kind,
        label=kind,
        tolerance=4e-2,
        dtypes=ONE,
        **third,
    )


def gated(act, y):
    n = y.shape[-1] // 2
    return act(y[..., :n]) * y[..., n:]


ACTS = {
    "relu": F.relu, "gelu": F.gelu, "fastgelu": lambda y: y / (1 + torch.exp(-1.702 * y)), "silu": lambda y: y / (1 + torch.exp(-y)),
    "geglu": lambda y: gated(F.gelu, y), "swiglu": lambda y: gated(F.silu, y), "reglu": lambda y: gated(F.relu, y),
}  # fmt: skip


def ffn(x, w1, w2, act, *, expert_tokens=None, expert_tokens_index=None, bias1=None, bias2=None):
    if expert_tokens_index is not None:
        expert_tokens = [b - a for a, b in zip([0, *expert_tokens_index], expert_tokens_index)]
    if expert_tokens is None:
        y = ACTS[act](x @ w1 + (0 if bias1 is None else bias1)) @ w2
        return y + (0 if bias2 is None else bias2)
    parts, at = [], 0
    for e, n in enumerate(expert_tokens):
        parts.append(ffn(x[at : at + n], w1[e], w2[e], act, bias1=bias1[e], bias2=bias2[e]))
        at += n
    return torch.cat(parts)


for act in ACTS:
    add(
        "npu_ffn",
        ffn,
        rand(3, 4),
        rand(4, 6),
        rand(3 if "glu" in act else 6, 4),
        act,
        bias1=rand(6),
        bias2=rand(4),
        label=act,
        dtypes=ONE,
    )
experts = (rand(5, 4), rand(2, 4, 6), rand(2, 6, 4), "relu")
add(
    "npu_ffn",
    ffn,
    *experts,
    expert_tokens=[2, 3],
    bias1=rand(2, 6),
    bias2=rand(2, 4),
    label="experts",
)
add(
    "npu_ffn",
    ffn,
    *experts,
    expert_tokens_index=[1, 5],
    bias1=rand(2, 6),
    bias2=rand(2, 4),
    label="ends",
    dtypes=ONE,
)


def experts_of(call, x, expert_tokens, act, **given):
    if expert_tokens is None:
        return call(x, act=act, **given)
    parts, at = [], 0
    for e, n in enumerate(expert_tokens):
        own = {k: None if t is None else t[e] for k, t in given.items()}
        parts.append(call(x[at : at + n], act=act, **own))
        at += n
    return torch.cat(parts)


def ffn_int8(x, w1, w2, act, *, expert_tokens=None, bias1=None, bias2=None, scale, offset=None, deq_scale1, deq_scale2, output_dtype=None):  # fmt: skip
    def one(x, act, w1, w2, bias1, bias2, scale, offset, deq_scale1, deq_scale2):
        y = (x.double() @ w1.double() + (0 if bias1 is None else bias1)) * deq_scale1
        y = torch.round(ACTS[act](y) * scale + (0 if offset is None else offset)).clamp(-128, 127)
        return (y @ w2.double() + (0 if bias2 is None else bias2)) * deq_scale2

    return experts_of(
        one, x, expert_tokens, act, w1=w1, w2=w2, bias1=bias1, bias2=bias2, scale=scale,
        offset=offset, deq_scale1=deq_scale1, deq_scale2=deq_scale2,
    )  # fmt: skip


def ffn_antiquant(x, w1, w2, act, *, expert_tokens=None, bias1=None, bias2=None, antiquant_scale1, antiquant_scale2,
                  antiquant_offset1=None, antiquant_offset2=None):  # fmt: skip
    def one(x, act, w1, w2, bias1, bias2, s1, s2, o1, o2):
        y = x @ ((w1.double() + (0 if o1 is None else o1)) * s1) + (0 if bias1 is None else bias1)
        return ACTS[act](y) @ ((w2.double() + (0 if o2 is None else o2)) * s2) + (
            0 if bias2 is None else bias2
        )

    return experts_of(
        one, x, expert_tokens, act, w1=w1, w2=w2, bias1=bias1, bias2=bias2, s1=antiquant_scale1,
        s2=antiquant_scale2, o1=antiquant_offset1, o2=antiquant_offset2,
    )  # fmt: skip


def w8(*sizes):
    return ints(-20, 20, *sizes, dtype=torch.int8)


_int8_case = {"output_dtype": torch.float16, "dtypes": ONE, "tolerance": 2e-3}
_one = {"deq_scale1": rand(6) / 64, "deq_scale2": rand(4) / 64}
_each = {"deq_scale1": rand(2, 6) / 64, "deq_scale2": rand(2, 4) / 64, "expert_tokens": [2, 3]}
for act in ("relu", "silu", "gelu", "fastgelu"):
    add("npu_ffn", ffn_int8, w8(3, 4), w8(4, 6), w8(6, 4), act, scale=rand(1) * 9, offset=rand(1), label=f"int8-{act}", **_one, **_int8_case)  # fmt: skip
add("npu_ffn", ffn_int8, w8(3, 4), w8(4, 6), w8(6, 4), "relu", scale=rand(6) * 9, bias1=ints(-9, 9, 6, dtype=torch.int32),
    bias2=ints(-9, 9, 4, dtype=torch.int32), label="int8-channel", **_one, **_int8_case)  # fmt: skip
add("npu_ffn", ffn_int8, w8(5, 4), w8(2, 4, 6), w8(2, 6, 4), "relu", scale=rand(2) * 9, offset=rand(2), label="int8-experts", **_each, **_int8_case)  # fmt: skip
add("npu_ffn", ffn_antiquant, rand(3, 4), w8(4, 6), w8(6, 4), "silu", antiquant_scale1=rand(6) / 8, antiquant_scale2=rand(4) / 8,
    antiquant_offset1=rand(6), antiquant_offset2=rand(4), bias1=rand(6), bias2=rand(4), label="antiquant", dtypes=ONE)  # fmt: skip
add("npu_ffn", ffn_antiquant, rand(5, 4), w8(2, 4, 6), w8(2, 6, 4), "relu", antiquant_scale1=rand(2, 6) / 8,
    antiquant_scale2=rand(2, 4) / 8, expert_tokens=[2, 3], label="antiquant-experts", dtypes=ONE)  # fmt: skip


def biased(x, mask, bias, scale=1.0):
    y = x * scale
    for w in range(x.shape[1]):
        for n in range(x.shape[2]):
            y[:, w, n] += bias[n] + (0 if mask is None else mask[w])
    return torch.softmax(y, -1)


add(
    "npu_masked_softmax_with_rel_pos_bias",
    biased,
    rand(2, 3, 2, 4, 4),
    rand(3, 4, 4),
    rand(2, 4, 4),
    0.5,
)
add(
    "npu_masked_softmax_with_rel_pos_bias",
    biased,
    rand(2, 3, 2, 4, 4),
    None,
    rand(2, 4, 4),
    label="no-mask",
)


# ---- quantisation
def gelu_quant(x, *, input_scale=None, input_offset=None, approximate="none", quant_mode="dynamic"):
    y = F.gelu(x, approximate=approximate)
    y = y if input_scale is None else y * input_scale
    return (
        by_row(y) if quant_mode == "dynamic" else (int8(y + input_offset), torch.empty(0).double())
    )


add(
    "npu_gelu_quant",
    gelu_quant,
    rand(3, 8),
    input_scale=rand(8, low=0.5),
    dtypes=ONE,
    tolerance=1e-5,
)
add(
    "npu_gelu_quant",
    gelu_quant,
    rand(3, 8),
    input_scale=rand(8) * 16,
    input_offset=rand(8),
    quant_mode="static",
    approximate="tanh",
    label="static",
    dtypes=ONE,
    tolerance=1e-5,
)


def dequant_swiglu(
    x,
    *,
    weight_scale,
    activation_scale,
    bias=None,
    quant_scale=None,
    quant_offset=None,
    activate_left=False,
    quant_mode=0,
    swiglu_mode=0,
):
    y = (
        (x.double() + (0 if bias is None else bias))
        * weight_scale
        * activation_scale.reshape(-1, 1)
    )
    if swiglu_mode:
        a, b = y[:, ::2].clamp(max=7), y[:, 1::2].clamp(-7, 7)
        y = a / (1 + torch.exp(-1.702 * a)) * (b + 1)
    else:
        n = y.shape[1] // 2
        a, b = (y[:, :n], y[:, n:]) if activate_left else (y[:, n:], y[:, :n])
        y = a / (1 + torch.exp(-a)) * b
    if quant_mode == 1:
        return by_row(y * quant_scale)
    return int8(y / quant_scale + quant_offset), torch.empty(0).double()


scales = {
    "weight_scale": rand(8, low=0.01, high=0.1) + 1 / 64,
    "activation_scale": rand(3, low=0.25, high=1),
}
for left in (False, True):
    add(
        "npu_dequant_swiglu_quant",
        dequant_swiglu,
        ints(-50, 50, 3, 8, dtype=torch.int32),
        bias=ints(-9, 9, 8, dtype=torch.int32),
        quant_scale=rand(4, low=0.5, high=1),
        quant_mode=1,
        activate_left=left,
        label=f"dynamic-{left}",
        dtypes=ONE,
        tolerance=1e-5,
        **scales,
    )
add(
    "npu_dequant_swiglu_quant",
    dequant_swiglu,
    ints(-50, 50, 3, 8, dtype=torch.int32),
    quant_scale=rand(1, low=0.25, high=1),
    quant_offset=rand(1),
    label="static",
    dtypes=ONE,
    tolerance=1e-5,
    **scales,
)
add(
    "npu_dequant_swiglu_quant",
    dequant_swiglu,
    ints(-50, 50, 3, 8, dtype=torch.int32),
    quant_scale=rand(4, low=0.25, high=1),
    quant_mode=1,
    swiglu_mode=1,
    label="clipped",
    dtypes=ONE,
    tolerance=1e-5,
    **scales,
)


def block_quant(x, *, row_block_size=1, col_block_size=128, min_scale=0.0):
    rows, columns = x.shape
    down, across = -(-rows // row_block_size), -(-columns // col_block_size)
    y, scale = torch.zeros(rows, columns, dtype=torch.int8), torch.zeros(down, across).double()
    for i in range(down):
        for j in range(across):
            at = (
                slice(i * row_block_size, (i + 1) * row_block_size),
                slice(j * col_block_size, (j + 1) * col_block_size),
            )
            scale[i, j] = max(x[at].abs().max() / 127, min_scale)
            y[at] = int8(x[at] / scale[i, j], -127)
    return y, scale


add("npu_dynamic_block_quant", block_quant, rand(3, 300), dtypes=ONE, tolerance=1e-5)
add(
    "npu_dynamic_block_quant",
    block_quant,
    rand(5, 10),
    row_block_size=2,
    col_block_size=4,
    min_scale=0.01,
    label="blocks",
    dtypes=ONE,
    tolerance=1e-5,
)


# ---- caches
def kv_cache(
    kv, gamma, cos, sin, index, k_cache, ckv_cache, *, cache_mode="Norm", is_output_kv=False
):
    n = gamma.numel()
    ckv = kv[..., :n] / torch.sqrt((kv[..., :n] ** 2).mean(-1, keepdim=True) + 1e-5) * gamma
    x = torch.cat((kv[..., n::2], kv[..., n + 1 :: 2]), -1)
    half = x.shape[-1] // 2
    k = x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin
    k_cache, ckv_cache = k_cache.clone(), ckv_cache.clone()
    for b in range(kv.shape[0]):
        for s in range(kv.shape[2]):
            for cache, rows in ((k_cache, k), (ckv_cache, ckv)):
                if cache_mode == "Norm":
                    cache[b, 0, index[b, s]] = rows[b, 0, s]
                elif index[b * kv.shape[2] + s] >= 0:
                    slot = int(index[b * kv.shape[2] + s])
                    cache[slot // cache.shape[1], slot % cache.shape[1], 0] = rows[b, 0, s]
    empty = torch.empty(0).double()
    return (k_cache, ckv_cache, k, ckv) if is_output_kv else (k_cache, ckv_cache, empty, empty)


KV = (rand(2, 1, 3, 12), rand(8), rand(2, 1, 3, 4), rand(2, 1, 3, 4))
NORM = (torch.tensor([[0, 2, 4], [1, 3, 0]]), rand(2, 1, 5, 4), rand(2, 1, 5, 8))
PAGED = (torch.tensor([5, 0, -1, 2, 3, 7]), rand(3, 4, 1, 4), rand(3, 4, 1, 8))
K = "npu_kv_rmsnorm_rope_cache"
for where, mode in ((NORM, "Norm"), (PAGED, "PA")):
    add(K, kv_cache, *KV, *where, cache_mode=mode, is_output_kv=True, label=mode)
    add(
        f"{K}_v2_functional",
        lambda *a, **k: (lambda r: (r[2], r[3], r[0], r[1]))(kv_cache(*a, **k)),
        *KV,
        *where,
        cache_mode=mode,
        label=mode,
    )
    add(
        f"{K}_v2",
        lambda *a, **k: kv_cache(*a, **k)[2:],
        *KV,
        *where,
        cache_mode=mode,
        is_output_kv=True,
        label=mode,
    )


# ---- images, statistics
def normalised(x, mean, variance, dtype=0):
    return (x - torch.tensor(mean).double().view(-1, 1, 1)) / torch.tensor(variance).double().view(
        -1, 1, 1
    )


for name in ("image_normalize", "image_normalize_"):
    add(name, normalised, rand(2, 3, 4, 4), [0.5, 0.25, 0.0], [0.5, 1.0, 2.0], dtypes=ONE)
add(
    "img_to_tensor",
    lambda x: x.permute(0, 3, 1, 2).double() / 255,
    ints(0, 256, 2, 4, 5, 3, dtype=torch.uint8),
    dtypes=ONE,
)
add(
    "batch_norm_reduce",
    lambda x, e: (x.sum((0, 2, 3)), (x**2).sum((0, 2, 3))),
    rand(2, 3, 4, 4),
    1e-5,
    tolerance=1e-3,
)
