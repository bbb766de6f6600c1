# SPDX-License-Identifier: Apache-2.0
"""torch.ops.atb: each operator against loops in float64, written from what its page says."""

import math
import re
from pathlib import Path

import pytest
import torch
import torch_npu
from table import DEVICE, ints, rand

# Shown elsewhere: test_special.py, then test_atb_paged.py.
ELSEWHERE = {
    "_npu_paged_attention", "_npu_reshape_and_cache", "_npu_reshape_and_cache_siso",
    "_npu_flash_attention_unpad",
    "_npu_flash_attention_v2", "_npu_flash_attention_prefix_v2", "_npu_paged_attention_v2",
    "_npu_paged_attention_get_workspace", "_npu_paged_attention_quant", "_npu_quant_rms_norm",
    "npu_multi_head_latent_attention",
}  # fmt: skip
N, KV, SIZE, SCALE = 4, 2, 8, 0.3
KEYS, VALUES = rand(6, 4, KV, SIZE), rand(6, 4, KV, SIZE)
TABLE = torch.tensor([[3, 1], [0, 5]], dtype=torch.int32)
TOTAL = [7, 5]


def call(name):
    """Notes that a test is about this operator."""
    return getattr(torch.ops.atb, name)


def dev(x, dtype=torch.float32):
    return x.to(dtype if x.is_floating_point() else x.dtype).to(DEVICE, copy=True)


def near(got, want, tolerance=1e-5):
    torch.testing.assert_close(got.cpu().double(), want.double(), rtol=tolerance, atol=tolerance)


def token(cache, b, j):
    return cache[int(TABLE[b, j // 4]), j % 4]


def attend(q, keys, values, added):
    """One token: heads (N, D) over lists of (KV, D); `added` a number for each key, -inf drops it."""
    out, lse = [], []
    for h in range(N):
        g = h // (N // KV)
        s = [float((q[h] * k[g]).sum()) * SCALE + a for k, a in zip(keys, added)]
        e = [math.exp(x) for x in s]
        out.append(sum(x * v[g] for x, v in zip(e, values)) / sum(e))
        lse.append(math.log(sum(e)))
    return torch.stack(out), torch.tensor(lse, dtype=torch.float64)


def causal(i, n, total):
    return [0.0 if j <= i + total - n else -math.inf for j in range(total)]


def packed(q, lengths, totals, keys_of, added_of):
    """(out, lse) of packed queries; keys_of(b) gives keys and values of a sequence."""
    outs, lses, at = [], [], 0
    for b, (n, total) in enumerate(zip(lengths, totals)):
        keys, values = keys_of(b)
        for i in range(n):
            out, lse = attend(q[at], keys, values, added_of(b, i, n, total, at))
            outs.append(out)
            lses.append(lse)
            at += 1
    return torch.stack(outs), torch.stack(lses, 1)


def cached(b):
    return [[token(c, b, j) for j in range(TOTAL[b])] for c in (KEYS, VALUES)]


@pytest.mark.parametrize("flat", [False, True])
def test_flash_attention(flat):
    q, k, v = rand(5, N, SIZE), rand(5, KV, SIZE), rand(5, KV, SIZE)
    mask = torch.triu(torch.full((3, 3), -1e4, dtype=torch.float64), 1) + rand(3, 3)
    starts = [0, 2]
    want = packed(
        q, [2, 3], [2, 3],
        lambda b: [list(x[starts[b] : starts[b] + 2 + b]) for x in (k, v)],
        lambda b, i, n, total, at: mask[i, :total].tolist(),
    )[0]  # fmt: skip
    given = [dev(x.flatten(1) if flat else x) for x in (q, k, v)]
    out = torch.zeros_like(given[0])
    lens = torch.tensor([2, 3], dtype=torch.int32)
    assert call("_npu_flash_attention")(*given, dev(mask), lens, SCALE, N, KV, out) is None
    near(out, want.reshape(out.shape))
    with pytest.raises(
        RuntimeError, match=r"seq_len adds up to 4, and there are 5 tokens[^$]*ERR01001"
    ):
        torch.ops.atb._npu_flash_attention(*given, dev(mask), lens - lens // 3, SCALE, N, KV, out)


LAST = [3, 2]
QUERIES = rand(5, N, SIZE)
CAUSAL = lambda b, i, n, total, at: causal(i, n, total)  # noqa: E731


def lens(values):
    return torch.tensor(values, dtype=torch.int32)


def test_queries_at_the_end_of_paged_sequences():
    want = packed(QUERIES, LAST, TOTAL, cached, CAUSAL)[0]
    caches = dev(QUERIES), dev(KEYS), dev(VALUES)
    out = torch.zeros_like(caches[0])
    triangle = torch.ones(8, 8, device=DEVICE)
    call("_npu_flash_attention_qlens")(
        *caches, dev(TABLE), triangle, lens(LAST), lens(TOTAL), KV, N, SCALE, out
    )
    near(out, want)
    found = call("npu_self_attention_prefix_encoder")(
        *caches, dev(TABLE), lens(LAST), lens(TOTAL), N, SCALE, KV
    )
    near(found, want)
    out.zero_()
    torch.ops.atb.npu_self_attention_prefix_encoder(
        *caches, dev(TABLE), lens(LAST), lens(TOTAL), N, SCALE, KV, output=out
    )
    near(out, want)
    with pytest.raises(NotImplementedError, match="mask_type_alibi_compress is not supported"):
        torch.ops.atb.npu_self_attention_prefix_encoder(
            *caches, dev(TABLE), lens(LAST), lens(TOTAL), N, SCALE, KV,
            mask_type="mask_type_alibi_compress",
        )  # fmt: skip


def test_a_row_of_the_mask_for_each_token():
    mask = rand(5, 9)
    want = packed(
        QUERIES, LAST, TOTAL, cached, lambda b, i, n, total, at: mask[at, :total].tolist()
    )[0]
    out = torch.zeros(5, N, SIZE, device=DEVICE)
    call("_npu_paged_attention_splitfuse")(
        dev(QUERIES), dev(KEYS), dev(VALUES), dev(TABLE), lens(TOTAL), dev(mask), lens(LAST), KV, N,
        SCALE, out,
    )  # fmt: skip
    near(out, want)


def test_values_in_the_keys():
    want = packed(
        QUERIES[:2], [1, 1], TOTAL,
        lambda b: (cached(b)[0], [x[:, :5] for x in cached(b)[0]]), CAUSAL,
    )[0]  # fmt: skip
    out = torch.zeros(2, N, 5, device=DEVICE)
    call("_npu_paged_attention_mla")(
        dev(QUERIES[:2]), dev(KEYS), KV, N, SCALE, dev(TABLE), lens(TOTAL), 5, out
    )
    near(out, want)
    with pytest.raises(RuntimeError, match=r"mla_vheadsize is 9; allowed: 1 to 8[^$]*ERR01003"):
        torch.ops.atb._npu_paged_attention_mla(
            dev(QUERIES[:2]), dev(KEYS), KV, N, SCALE, dev(TABLE), lens(TOTAL), 9, out
        )


@pytest.mark.parametrize("mask_type", ["no_mask", "mask_type_triu"])
def test_ring_of_two(mask_type):
    """Both halves of the keys, one after the other, give what all keys give at once."""
    q, k, v = rand(5, N, SIZE), rand(5, KV, SIZE), rand(5, KV, SIZE)
    starts, lengths = [0, 2], [2, 3]
    added = CAUSAL if mask_type == "mask_type_triu" else lambda b, i, n, total, at: [0.0] * total
    keys_of = lambda b: [list(x[starts[b] : starts[b] + lengths[b]]) for x in (k, v)]  # noqa: E731
    out, lse = packed(q, lengths, lengths, keys_of, added)

    def halves(x):
        return dev(x[..., :5]), dev(x[..., 5:])

    options = {"qk_scale": SCALE, "mask_type": mask_type}
    mask = torch.ones(4, 4, device=DEVICE)
    got = call("npu_ring_mla")(
        *halves(q), *halves(k), dev(v), mask, lens(lengths), N, KV, **options
    )
    near(got[0], out)
    near(got[1], lse)
    outs = [torch.zeros_like(x) for x in got]
    torch.ops.atb.npu_ring_mla(
        *halves(q), *halves(k), dev(v), mask, lens([lengths, lengths]), N, KV, **options,
        output=outs[0], softmax_lse=outs[1],
    )  # fmt: skip
    near(outs[0], out)
    if mask_type == "mask_type_triu":
        return
    more_k, more_v = rand(4, KV, SIZE), rand(4, KV, SIZE)
    again = torch.ops.atb.npu_ring_mla(
        *halves(q), *halves(more_k), dev(more_v), mask, lens([lengths, [3, 1]]), N, KV, **options,
        calc_type="calc_type_default", pre_out=got[0], prev_lse=got[1],
    )  # fmt: skip
    cut = [slice(0, 3), slice(3, 4)]
    both = packed(
        q, lengths, [5, 4],
        lambda b: [a + list(x[cut[b]]) for a, x in zip(keys_of(b), (more_k, more_v))], added,
    )  # fmt: skip
    near(again[0], both[0])
    near(again[1], both[1])
    with pytest.raises(RuntimeError, match="pre_out and prev_lse must be given"):
        torch.ops.atb.npu_ring_mla(
            *halves(q),
            *halves(k),
            dev(v),
            mask,
            lens(lengths),
            N,
            KV,
            calc_type="calc_type_default",
        )


def groups_kept(row, groups, n, keep):
    size = len(row) // groups
    value = [sum(sorted(row[g * size : (g + 1) * size])[-n:]) for g in range(groups)]
    best = sorted(range(groups), key=lambda g: (-value[g], g))[:keep]
    return [e // size in best for e in range(len(row))]


@pytest.mark.parametrize("n", [1, 2])
def test_groups_of_experts(n):
    x = rand(5, 12)
    want = [
        [v if kept else 0.0 for v, kept in zip(row, groups_kept(row, 4, n, 2))]
        for row in x.tolist()
    ]
    got = dev(x)
    call("_npu_group_topk")(got, k=2, group_num=4, n=n)
    near(got, torch.tensor(want, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=r"12 experts in 5 groups[^$]*ERR01003"):
        torch.ops.atb._npu_group_topk(got, k=2, group_num=5)


@pytest.mark.parametrize("is_norm", [False, True])
def test_experts_of_each_token(is_norm):
    x, bias = rand(5, 12), rand(12)
    weights, chosen = [], []
    for row in x.tolist():
        s = [1 / (1 + math.exp(-v)) for v in row]
        choice = [v + b for v, b in zip(s, bias.tolist())]
        kept = groups_kept(choice, 4, 2, 2)
        order = sorted((e for e in range(12) if kept[e]), key=lambda e: (-choice[e], e))[:3]
        total = sum(s[e] for e in order) if is_norm else 1.0
        weights.append([s[e] / total * 2.5 for e in order])
        chosen.append(order)
    options = {"group_num": 4, "group_topk": 2, "n": 2, "k": 3, "is_norm": is_norm, "scale": 2.5}
    y, indices = call("npu_fused_add_topk_div")(dev(x), dev(bias), **options)
    near(y, torch.tensor(weights, dtype=torch.float64))
    assert indices.tolist() == chosen and indices.dtype == torch.int32 and y.dtype == torch.float32
    outs = torch.zeros_like(y), torch.zeros_like(indices)
    torch.ops.atb.npu_fused_add_topk_div(dev(x), dev(bias), **options, y=outs[0], indices=outs[1])
    assert torch.equal(outs[0], y) and torch.equal(outs[1], indices)
    with pytest.raises(NotImplementedError, match="enable_expert_mapping is not supported"):
        torch.ops.atb.npu_fused_add_topk_div(dev(x), dev(bias), enable_expert_mapping=True)


def test_caches_are_loaded():
    starts = [1, 0]
    rows = [
        torch.stack(
            [token(c, b, starts[b] + j) for b in (0, 1) for j in range(TOTAL[b] - starts[b])]
        )
        for c in (KEYS, VALUES)
    ]
    lengths = [t - s for t, s in zip(TOTAL, starts)]
    load = call("npu_paged_cache_load")
    whole = dev(KEYS), dev(VALUES), dev(TABLE)
    for given, cumsum in (
        (lengths, False),
        ([lengths[0], sum(lengths)], True),
        ([0, lengths[0], sum(lengths)], True),
    ):
        found = load(*whole, lens(given), seq_starts=lens(starts), cumsum=cumsum)
        for got, want in zip(found, rows, strict=True):
            near(got, want)
    outs = [torch.zeros_like(x) for x in found]
    load(*whole, lens(lengths), seq_starts=lens(starts), key=outs[0], value=outs[1])
    near(outs[1], rows[1])
    with pytest.raises(
        RuntimeError, match="a sequence has 9 tokens, and its row of the block table holds 8"
    ):
        load(*whole, lens([9, 1]))


def test_products_are_added():
    x, w, c = rand(7, 3), rand(7, 5), rand(3, 5)
    got = dev(c)
    call("_npu_matmul_add_fp32")(dev(x, torch.bfloat16), dev(w, torch.bfloat16), got)
    near(got, c + sum(x[i, :, None] * w[i] for i in range(7)))
    with pytest.raises(
        RuntimeError, match=r"C is torch.float16; allowed: torch.float32[^$]*ERR01002"
    ):
        torch.ops.atb._npu_matmul_add_fp32(dev(x), dev(w), got.half())


def test_quantised():
    x, scale, zero = rand(4, 6, low=-40, high=40), rand(6, low=0.25, high=1), ints(-3, 4, 6)
    got = torch.zeros(4, 6, dtype=torch.int8, device=DEVICE)
    call("_npu_quantize_per_tensor")(dev(x), dev(scale), dev(zero).to(torch.int8), got)
    want = [
        [
            max(-128, min(127, round(a / s + z)))
            for a, s, z in zip(row, scale.tolist(), zero.tolist())
        ]
        for row in x.tolist()
    ]
    assert got.tolist() == want


@pytest.mark.parametrize("neox", [False, True])
def test_rotation(neox):
    angles = rand(9, 3)
    cache = torch.cat((angles.cos(), angles.sin()), 1)
    q, k, positions = rand(4, 2 * SIZE), rand(4, SIZE), torch.tensor([[8, 0], [3, 5]])

    def turned(x):
        out = x.clone().reshape(4, -1, SIZE)
        for t, p in enumerate(positions.flatten().tolist()):
            for i in range(3):
                a, b = (i, i + 3) if neox else (2 * i, 2 * i + 1)
                c, s = float(angles[p, i].cos()), float(angles[p, i].sin())
                first, second = out[t, :, a].clone(), out[t, :, b].clone()
                out[t, :, a], out[t, :, b] = first * c - second * s, second * c + first * s
        return out.reshape(x.shape)

    got = dev(q), dev(k)
    call("_npu_rotary_embedding")(dev(positions), *got, SIZE, dev(cache), neox)
    near(got[0], turned(q))
    near(got[1], turned(k))


def test_every_implemented_operator_is_here():
    names = {n for n, row in torch_npu._C._custom_operators("atb").items() if row[0]}
    shown = set(re.findall(r'call\("(\w+)"\)', Path(__file__).read_text(encoding="utf-8")))
    assert names == shown | ELSEWHERE
