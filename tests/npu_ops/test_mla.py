# SPDX-License-Identifier: Apache-2.0
"""The MLA prologue's quantised products and caches, judged by what it returns of their parts."""

import cases_attention_8bit as eight
import pytest
import torch
import torch_npu
from table import DEVICE, rand

T, HE, HCQ, N, D, DR, HCKV = 5, 64, 64, 2, 16, 64, 512
DTYPE = torch.bfloat16
SIZE = 4  # rows of a block of a cache


def dev(x):
    return x.to(DEVICE, copy=True)


def sixteen(*size, scale=0.5):
    return (rand(*size) * scale).to(DTYPE)


def inputs(tokens=T):
    weights = [
        sixteen(HE, HCQ),
        sixteen(HCQ, N * (D + DR)),
        sixteen(N, D, HCKV),
        sixteen(HE, HCKV + DR),
    ]
    gammas = [sixteen(HCQ) + 1, sixteen(HCKV) + 1]
    return sixteen(tokens, HE), weights, gammas, [sixteen(tokens, DR, scale=1) for _ in range(2)]


def caches(width=HCKV, dtype=DTYPE, blocks=3):
    return (
        torch.zeros(blocks, SIZE, 1, width, dtype=dtype), torch.zeros(blocks, SIZE, 1, DR, dtype=DTYPE)
    )  # fmt: skip


def run(x, weights, gammas, angles, stored, slots, **options):
    """(outputs, caches), on the CPU."""
    stored = [dev(c) for c in stored]
    options = {k: dev(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    out = torch_npu.npu_mla_prolog_v3(
        dev(x), *[dev(w) for w in weights], *[dev(g) for g in gammas], *[dev(a) for a in angles],
        *stored, cache_index=None if slots is None else dev(slots), **options,
    )  # fmt: skip
    return [o.cpu() for o in out], [c.cpu() for c in stored]


def near(got, want, tolerance):
    apart = (got.double() - want.double()).norm() / want.double().norm()
    assert apart < tolerance, apart


def quantised(x, mode):
    """(stored, scale of each row, the numbers they stand for)."""
    x = x.double()
    if mode == 5:
        scale = x.abs().amax(1, keepdim=True) / 16
        y = eight.to_hif8(x / scale)
        return y, scale.float(), eight.HIF8_VALUES[y.long()] * scale
    if mode == 4:
        scale = x.abs().amax(1, keepdim=True) / 448
        y = (x / scale).to(torch.float8_e4m3fn)
        return y, scale.float(), y.double() * scale
    blocks = x.unflatten(1, (-1, 32))
    exponent = torch.floor(torch.log2(blocks.abs().amax(2))) - 8
    y = (blocks / 2 ** exponent[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return (
        y.flatten(1),
        (exponent + 127).to(torch.uint8),
        (y.double() * 2 ** exponent[..., None]).flatten(1),
    )


@pytest.mark.parametrize("mode", [3, 4, 5])
def test_products_of_quantised_weights(mode):
    """fp8, hifloat8 and MX: query's product is that of the normalised query which is returned."""
    x, weights, gammas, angles = inputs()
    x, x_scale, x_exact = quantised(x, mode)
    stored = [quantised(w.t(), mode) for w in (weights[0], weights[1], weights[3])]
    given = [stored[0][0].t(), stored[1][0].t(), weights[2], stored[2][0].t()]
    shape = (lambda s: s) if mode == 3 else (lambda s: s.reshape(1, -1))
    (q, q_rope, _, norm, norm_scale), (kv, _) = run(
        x, given, gammas, angles, caches(), torch.arange(T), weight_quant_mode=mode,
        query_norm_flag=True, dequant_scale_x=x_scale, dequant_scale_w_dq=shape(stored[0][1]),
        dequant_scale_w_uq_qr=shape(stored[1][1]), dequant_scale_w_dkv_kr=shape(stored[2][1]),
    )  # fmt: skip
    assert q.dtype == q_rope.dtype == DTYPE and norm.shape == (T, HCQ)

    def normed(y, gamma):
        return y / torch.sqrt((y * y).mean(1, keepdim=True) + 1e-5) * gamma.double()

    cq = normed(x_exact @ stored[0][2].t(), gammas[0])
    numbers = eight.HIF8_VALUES[norm.long()] if mode == 5 else norm.double()
    if mode == 3:
        assert norm_scale.dtype == torch.uint8 and norm_scale.shape == (T, HCQ // 32)
        numbers = numbers * 2 ** (norm_scale.double() - 127).repeat_interleave(32, 1)
    else:
        assert norm_scale.shape == (T, 1)
        numbers = numbers * norm_scale.double()
    # A row's maximum is mapped on the format's largest number, where hifloat8 has one fraction bit.
    near(numbers, cq, 0.15 if mode == 5 else 0.04)
    z = (numbers @ stored[1][2].t()).unflatten(1, (N, D + DR))
    near(q, torch.einsum("tnd,ndh->tnh", z[..., :D], weights[2].double()), 0.01)
    ckv = normed((x_exact @ stored[2][2].t())[:, :HCKV], gammas[1])
    near(kv.reshape(-1, HCKV)[:T], ckv, 0.01)


@pytest.mark.parametrize("alpha", [None, 0.75])
def test_rows_quantised_by_tile_are_those_that_attention_reads(alpha):
    x, weights, gammas, angles = inputs()
    slots = torch.tensor([7, 0, -1, 4, 2])
    _, (plain, rope) = run(x, weights, gammas, angles, caches(), slots)
    options = {} if alpha is None else {"k_nope_clip_alpha": torch.tensor([alpha])}
    _, (packed, untouched) = run(
        x, weights, gammas, angles, caches(656, torch.int8), slots, kv_cache_quant_mode=3,
        ckvkr_repo_mode=1, quant_scale_repo_mode=1, **options,
    )  # fmt: skip
    assert not untouched.any()
    packed, plain, rope = (c.reshape(-1, c.shape[-1]) for c in (packed, plain, rope))
    written = [7, 0, 4, 2]
    assert not packed[[n for n in range(12) if n not in written]].any()
    scales = packed[:, 640:].contiguous().view(torch.float32)
    assert torch.equal(packed[:, 512:640].contiguous().view(DTYPE), rope)
    limit = plain.double().unflatten(1, (4, 128)).abs().amax(2) * (alpha or 1)
    torch.testing.assert_close(scales.double() * 127, limit, rtol=5e-3, atol=0)
    read = packed[:, :512].double() * scales.double().repeat_interleave(128, 1)
    bound = limit.repeat_interleave(128, 1)
    want = torch.minimum(torch.maximum(plain.double(), -bound), bound)
    # Half a step of the scale, and the rounding of the plain cache to bfloat16.
    assert ((read - want).abs() <= bound / 127 * 0.5 + want.abs() / 200 + 1e-6).all()
    query = sixteen(1, 1, 2, 576, scale=0.1)
    ids = torch.tensor([[[[0, 2, 4, 7]]]], dtype=torch.int32)
    keys = packed.view(1, 12, 1, 656)
    found = torch_npu.npu_kv_quant_sparse_flash_attention(
        dev(query), dev(keys), dev(keys), dev(ids), 0.1, 2, 2, attention_mode=2, sparse_mode=0
    )
    rows = torch.cat((read.to(DTYPE).double(), rope.double()), 1)[[0, 2, 4, 7]]
    p = torch.softmax(query.double()[0, 0] @ rows.t() * 0.1, -1)
    near(found.cpu()[0, 0], p @ rows[:, :512], 0.01)


@pytest.mark.parametrize("mode", ["PA_BLK_BSND", "PA_BLK_NZ"])
def test_blocks_of_packed_sequences(mode):
    """cache_index holds the blocks of all sequences; a sequence's tokens fill them in order."""
    x, weights, gammas, angles = inputs(9)
    ends, blocks = [6, 7, 9], torch.tensor([3, 1, 0, 4])
    _, (kv, kr) = run(
        x, weights, gammas, angles, caches(blocks=5), blocks, cache_mode=mode,
        actual_seq_len=torch.tensor(ends),
    )  # fmt: skip
    where = [12, 13, 14, 15, 4, 5, 0, 16, 17]
    _, want = run(x, weights, gammas, angles, caches(blocks=5), torch.tensor(where))
    for got, plain in zip((kv, kr), want, strict=True):
        if mode == "PA_BLK_NZ":
            width = got.shape[-1]
            got = got.view(5, width // 16, SIZE, 16).transpose(1, 2).reshape(got.shape)
        assert torch.equal(got, plain)


def test_a_slot_past_the_cache_writes_nothing():
    x, weights, gammas, angles = inputs()
    stored = [dev(c) for c in caches()]
    with pytest.raises(RuntimeError, match=r"(?s)cache_index names slots .12.*ERR01003"):
        torch_npu.npu_mla_prolog_v3(
            dev(x), *[dev(w) for w in weights], *[dev(g) for g in gammas], *[dev(a) for a in angles],
            *stored, cache_index=dev(torch.tensor([0, 12, 1, 2, 3])),
        )  # fmt: skip
    assert not any(c.cpu().any() for c in stored)


def test_latent_values_given_as_the_keys():
    """One tensor as key and value is gathered once; results and gradients are those of two."""
    ids = torch.tensor([[[[0, 3, -1], [5, 1, 2]]]], dtype=torch.int32).view(1, 2, 1, 3)
    query, key = rand(1, 2, 4, 8), rand(1, 6, 1, 8)
    found = []
    for same in (True, False):
        q, k = (dev(x).requires_grad_() for x in (query, key))
        out = torch_npu.npu_sparse_flash_attention(
            q, k, k if same else k.clone(), dev(ids), 0.5, sparse_mode=0
        )[0]
        found.append([out, *torch.autograd.grad(out.pow(2).sum(), (q, k))])
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["npu_mla_prolog", "npu_mla_prolog_v2"])
def test_first_versions_write_their_caches_too(name):
    x, weights, gammas, angles = inputs()
    given = [dev(t) for t in (x, *weights, *gammas, *angles, torch.arange(T), *caches())]
    out = getattr(torch_npu, name)(*given)
    for returned, cache in zip(out[2:4], given[-2:], strict=True):
        assert returned.data_ptr() == cache.data_ptr()
        rows = cache.cpu().reshape(-1, cache.shape[-1]).ne(0).any(1)
        assert rows[:T].all() and not rows[T:].any()
