# SPDX-License-Identifier: Apache-2.0
"""torch.ops.atb: attention whose lengths are numbers, quantised caches, MLA and the quantised norm,
each against loops in float64, written from what its page says."""

import math

import pytest
import torch
import torch_npu
from table import DEVICE, ints, rand
from test_atb import (
    CAUSAL,
    KEYS,
    KV,
    LAST,
    QUERIES,
    SCALE,
    SIZE,
    TABLE,
    TOTAL,
    VALUES,
    N,
    cached,
    dev,
    lens,
    near,
    packed,
    token,
)  # fmt: skip

SLOPES = torch.tensor([0.5, -0.25, 0.125, 1.0], dtype=torch.float64)
HEADS = dict(num_heads=N, num_kv_heads=KV, scale_value=SCALE)


def by_heads(q, lengths, totals, keys_of, added_of):
    """As `packed`, where what is added differs between heads: added_of(..., head)."""
    rows = []
    for h in range(N):
        one = packed(
            q, lengths, totals, keys_of, lambda *a, h=h: added_of(*a, h)
        )[0]  # fmt: skip
        rows.append(one[:, h])
    return torch.stack(rows, 1)


def alibi(root):
    def added(b, i, n, total, at, h):
        last = i + total - n
        return [
            float(SLOPES[h]) * (math.sqrt(last - j) if root else last - j)
            if j <= last
            else -math.inf
            for j in range(total)
        ]

    return added


@pytest.mark.parametrize("mask_type", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("batched", [False, True])
def test_flash_attention_v2(mask_type, batched):
    q, k, v = rand(5, N, SIZE), rand(5, KV, SIZE), rand(5, KV, SIZE)
    keys_of = lambda b: [list(x[[0, 2][b] : [2, 5][b]]) for x in (k, v)]  # noqa: E731
    given = {"mask_type": mask_type, **HEADS}
    if mask_type == 0:
        added = lambda *a: [0.0] * a[3]  # noqa: E731
    elif mask_type == 1:
        mask = rand(2, 3, 3) if batched else rand(3, 3)
        given["mask"] = dev(mask)
        added = lambda b, i, n, total, at, h: (mask[b] if batched else mask)[i, :total].tolist()  # noqa: E731
    elif mask_type == 2:
        mask = rand(2, N, 3, 3) if batched else rand(N, 3, 3)
        given["mask"] = dev(mask)
        added = lambda b, i, n, total, at, h: (mask[b] if batched else mask)[h, i, :total].tolist()  # noqa: E731
    else:
        given |= {"mask": torch.zeros(256, 256, device=DEVICE), "slopes": dev(SLOPES)}
        added = alibi(mask_type == 5)
    out = torch.zeros(5, N, SIZE, device=DEVICE)
    found = torch.ops.atb._npu_flash_attention_v2(
        *(dev(x) for x in (q, k, v)), [2, 3], **given, out=out
    )
    assert found is out
    near(out, by_heads(q, [2, 3], [2, 3], keys_of, added))


def test_flash_attention_v2_refuses():
    q = torch.zeros(2, N, SIZE, device=DEVICE)
    run = lambda lengths=(2,), **k: torch_npu.atb._npu_flash_attention_v2(  # noqa: E731
        q, q, q, list(lengths), num_heads=N, **k, out=q
    )
    with pytest.raises(
        NotImplementedError, match=r"mask_type 6 .alibi_compress_left_align. is not"
    ):
        run(mask_type=6)
    with pytest.raises(RuntimeError, match=r"mask_type is 9; allowed: 0 \(none\)[^$]*ERR01003"):
        run(mask_type=9)
    with pytest.raises(RuntimeError, match="slopes must have a number for each of the 4 heads"):
        run(mask_type=4, slopes=torch.ones(3, device=DEVICE))
    with pytest.raises(RuntimeError, match=r"mask_type is 2 \(alibi\): give a mask"):
        run()
    with pytest.raises(RuntimeError, match="seq_len adds up to 3, and there are 2 tokens"):
        run([3], mask_type=0)


@pytest.mark.parametrize("mask_type", [3, 4, 5])
@pytest.mark.parametrize("flat", [False, True])
def test_flash_attention_prefix_v2(mask_type, flat):
    caches = [dev(c.flatten(2) if flat else c) for c in (KEYS, VALUES)]
    mask = torch.zeros(128 if mask_type == 3 else 256, 128 if mask_type == 3 else 256)
    out = torch.zeros(5, N, SIZE, device=DEVICE)
    lengths = (
        (lens(LAST), lens(TOTAL)) if flat else (LAST, TOTAL)
    )  # Ascend's own test gives tensors
    torch_npu.atb._npu_flash_attention_prefix_v2(
        dev(QUERIES), *caches, dev(TABLE), dev(mask), *lengths,
        slopes=None if mask_type == 3 else dev(SLOPES), mask_type=mask_type, **HEADS, out=out,
    )  # fmt: skip
    if mask_type == 3:
        want = packed(QUERIES, LAST, TOTAL, cached, CAUSAL)[0]
    else:
        want = by_heads(QUERIES, LAST, TOTAL, cached, alibi(mask_type == 5))
    near(out, want)


@pytest.mark.parametrize("shape", [None, (N, 1, 9), (2, N, 1, 9)])
def test_paged_attention_v2(shape):
    mask = None if shape is None else rand(*shape)
    out = torch.zeros(2, N, SIZE, device=DEVICE)
    key, value = (dev(c) for c in (KEYS, VALUES))
    torch.ops.atb._npu_paged_attention_v2(
        dev(QUERIES[:2]), key, dev(TABLE), TOTAL, value_cache=value,
        mask=None if mask is None else dev(mask), mask_type=0 if mask is None else 2, **HEADS, out=out,
    )  # fmt: skip

    def added(b, i, n, total, at, h):
        if mask is None:
            return [0.0] * total
        return (mask[b] if mask.dim() == 4 else mask)[h, 0, :total].tolist()

    near(out, by_heads(QUERIES[:2], [1, 1], TOTAL, cached, added))
    torch.ops.atb._npu_paged_attention_v2(
        dev(QUERIES[:2]), key, dev(TABLE), [0, 5], value_cache=value, **HEADS, out=out
    )
    assert not out[0].any() and out[1].any()
    with pytest.raises(RuntimeError, match="1 context_lens and 2 rows of the block table"):
        torch.ops.atb._npu_paged_attention_v2(
            dev(QUERIES[:2]), key, dev(TABLE), [5], value_cache=value, **HEADS, out=out
        )


def test_workspace_is_taken_and_empty():
    key, value = (dev(c) for c in (KEYS, VALUES))
    q, out = dev(QUERIES[:2]), torch.zeros(2, N, SIZE, device=DEVICE)
    args = q, key, value, KV, N, SCALE, dev(TABLE), lens(TOTAL), out
    room = torch_npu._npu_paged_attention_get_workspace(*args)
    assert room.device == q.device and room.numel() == 0
    torch_npu._npu_paged_attention(*args, workspace=room)
    none = lambda *a: [0.0] * a[3]  # noqa: E731
    near(out, packed(QUERIES[:2], [1, 1], TOTAL, cached, none)[0])


def int8(*shape):
    return ints(-9, 10, *shape).to(torch.int8)


def test_paged_attention_of_dequantised_caches():
    keys, values = int8(6, 4, KV, SIZE), int8(6, 4, KV, SIZE)
    scales = rand(KV * SIZE), rand(KV * SIZE)
    wide = [c.double() * s.reshape(KV, SIZE) for c, s in zip((keys, values), scales)]
    none = lambda *a: [0.0] * a[3]  # noqa: E731
    want = packed(
        QUERIES[:2], [1, 1], TOTAL,
        lambda b: [[token(c, b, j) for j in range(TOTAL[b])] for c in wide], none,
    )[0]  # fmt: skip
    out = torch.zeros(2, N, SIZE, device=DEVICE)
    torch_npu._npu_paged_attention_quant(
        dev(QUERIES[:2]), dev(keys), dev(values), KV, N, SCALE, dev(TABLE), lens(TOTAL), 1, 0,
        *(dev(s) for s in scales), out,
    )  # fmt: skip
    near(out, want)


def test_paged_attention_of_int8_products():
    keys, values, q = int8(6, 4, KV, SIZE), int8(6, 4, KV, SIZE), int8(2, N, SIZE)
    scales = rand(N).abs() / 20, rand(N).abs() / 20
    want = torch.zeros(2, N, SIZE, dtype=torch.float64)
    for b, total in enumerate(TOTAL):
        for h in range(N):
            k, v = ([token(c, b, j)[h // (N // KV)].double() for j in range(total)]
                    for c in (keys, values))  # fmt: skip
            s = [float((q[b, h].double() * x).sum()) * float(scales[0][h]) * SCALE for x in k]
            e = [math.exp(x - max(s)) for x in s]
            rounded = [round(x * 127) for x in e]
            total_value = sum(w * x for w, x in zip(rounded, v))
            want[b, h] = total_value * float(scales[1][h]) / 127 / sum(e)
    out = torch.zeros(2, N, SIZE, device=DEVICE, dtype=torch.bfloat16)
    args = dev(q), dev(keys), dev(values), KV, N, SCALE, dev(TABLE), lens(TOTAL)
    torch_npu._npu_paged_attention_quant(*args, 3, 27, *(dev(s) for s in scales), out)
    near(out, want, 1e-2)
    with pytest.raises(RuntimeError, match=r"outdata_type is 1 .torch.float16., and out is"):
        torch_npu._npu_paged_attention_quant(*args, 3, 1, *(dev(s) for s in scales), out)
    with pytest.raises(NotImplementedError, match="quant_type 2"):
        torch_npu._npu_paged_attention_quant(*args, 2, 27, *(dev(s) for s in scales), out)
    with pytest.raises(RuntimeError, match="k_descale has 3 numbers; allowed: 4"):
        torch_npu._npu_paged_attention_quant(*args, 3, 27, dev(scales[0][:3]), dev(scales[1]), out)


@pytest.mark.parametrize("way", ["decode", "spec", "spec with a mask"])
def test_multi_head_latent_attention(way):
    nope, rope = 6, 2
    lengths = [1, 1] if way == "decode" else LAST
    q = QUERIES[: sum(lengths)]
    latent, turned = KEYS[..., :nope], KEYS[..., nope:]
    mask = rand(len(q), 9)
    options = {} if way == "decode" else {"qseqlen": lengths, "calc_type": "calc_type_spec"}
    if way == "spec with a mask":
        options |= {"mask": dev(mask), "mask_type": "mask_type_spec"}
        added = lambda b, i, n, total, at: mask[at, :total].tolist()  # noqa: E731
    else:
        added = CAUSAL
    want = packed(
        q, lengths, TOTAL, lambda b: (cached(b)[0], [x[:, :nope] for x in cached(b)[0]]), added
    )[0]
    args = dev(q[..., :nope]), dev(q[..., nope:]), dev(latent), dev(turned), dev(TABLE), TOTAL
    got = torch_npu.atb.npu_multi_head_latent_attention(*args, N, SCALE, KV, **options)
    near(got, want)
    out = torch.zeros_like(got)
    torch_npu.atb.npu_multi_head_latent_attention(*args, N, SCALE, KV, **options, output=out)
    assert torch.equal(out, got) and rope == q.size(2) - nope
    with pytest.raises(NotImplementedError, match="cache_mode int8_nzcache is not supported"):
        torch_npu.atb.npu_multi_head_latent_attention(
            *args, N, SCALE, KV, cache_mode="int8_nzcache"
        )


@pytest.mark.parametrize("shape", [(4, 1, 16), (16,), (0, 16)])
def test_quant_rms_norm(shape):
    x, gamma, beta = rand(*shape), rand(1, 16), rand(1, 16)
    scale, offset = torch.tensor([0.3], dtype=torch.float64), torch.tensor([2], dtype=torch.int8)
    want = []
    for row in x.reshape(-1, 16).tolist():
        root = math.sqrt(sum(v * v for v in row) / 16 + 1e-3)
        want += [
            min(max(round((v / root * g + b) / 0.3 + 2), -128), 127)
            for v, g, b in zip(row, gamma[0].tolist(), beta[0].tolist())
        ]
    out = torch.zeros(shape, dtype=torch.int8, device=DEVICE)
    torch_npu._npu_quant_rms_norm(
        dev(x), dev(gamma), dev(beta), dev(scale), dev(offset), out, eps=1e-3
    )
    assert out.flatten().tolist() == want
    with pytest.raises(RuntimeError, match=r"output is torch.float32; allowed: torch.int8"):
        torch_npu._npu_quant_rms_norm(
            dev(x), dev(gamma), dev(beta), dev(scale), dev(offset), out.float()
        )
