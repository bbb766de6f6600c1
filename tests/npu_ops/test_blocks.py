# SPDX-License-Identifier: Apache-2.0
"""npu_fusion_attention over several blocks of rows and keys, against float64 matrices."""

import math

import pytest
import torch
import torch_npu

SQ, SKV, HEADS, KV_HEADS, SIZE = 150, 1100, 4, 2, 8
TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
DROPPED = torch.rand(2, 1, SQ, SKV, generator=torch.Generator().manual_seed(9)) < 0.4
DROPPED[0, 0, 3] = True  # a row without keys
DROPPED[1, 0, :, 512:1024] = True  # a block without keys


def rand(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def band(sq, skv, low, high):
    """True where low <= j - i <= high."""
    apart = torch.arange(skv)[None] - torch.arange(sq)[:, None]
    return (apart >= low) & (apart <= high)


def attend(q, k, v, scale, seen=None, bias=None, sink=None):
    """(N, S, D) in float64: (out, row maximum, row sum)."""
    k, v = (x.repeat_interleave(q.size(0) // x.size(0), 0) for x in (k, v))
    scores = q @ k.mT
    scores = (scores if bias is None else scores + bias) * scale
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    most = scores.amax(-1, keepdim=True)
    if sink is not None:
        most = torch.maximum(most, sink[:, None, None])
    shift = most.detach().clamp_min(-1e300)
    p = torch.exp(scores - shift)
    total = p.sum(-1, keepdim=True)
    if sink is not None:
        total = total + torch.exp(sink[:, None, None] - shift)
    out = p / total.clamp_min(1e-300) @ v
    return out, most[..., 0].clamp_min(torch.finfo(torch.float32).min), total[..., 0]


D = SKV - SQ
MODES = {
    "full": ({}, None),
    "left-top": ({"sparse_mode": 2}, band(SQ, SKV, -SKV, 0)),
    "right-down": ({"sparse_mode": 3}, band(SQ, SKV, -SKV, D)),
    "band": (
        {"sparse_mode": 4, "pre_tockens": 300, "next_tockens": -20},
        band(SQ, SKV, D - 300, D - 20),
    ),
    "prefix": (
        {"sparse_mode": 6, "prefix": [D, D + 60]},
        [band(SQ, SKV, -SKV, D) | (torch.arange(SKV) < n) for n in (D, D + 60)],
    ),
    "given": ({"sparse_mode": 1}, [~DROPPED[0, 0], ~DROPPED[1, 0]]),
    "given-band": (
        {"sparse_mode": 0, "pre_tockens": 20, "next_tockens": 600},
        [~DROPPED[b, 0] & band(SQ, SKV, -20, 600) for b in (0, 1)],
    ),
}


def check(found, wanted, inputs, leaves, dtype):
    t = 3e-5 if dtype == torch.float32 else 3e-2
    for i, (got, want) in enumerate(zip(found, wanted, strict=True)):
        torch.testing.assert_close(
            got.detach().cpu().double(),
            want.detach(),
            rtol=t,
            atol=t,
            msg=lambda m, i=i: f"{i}: {m}",
        )
    seed = rand(*wanted[0].shape, seed=5)
    grads = torch.autograd.grad(found[0], inputs, seed.to(dtype).npu())
    for i, (got, want) in enumerate(
        zip(grads, torch.autograd.grad(wanted[0], leaves, seed), strict=True)
    ):
        scale = max(1, want.abs().max())
        torch.testing.assert_close(
            got.cpu().double(),
            want,
            rtol=8 * t,
            atol=8 * t * scale,
            msg=lambda m, i=i: f"grad {i}: {m}",
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("mode", MODES)
def test_modes(mode, dtype):
    options, seen = MODES[mode]
    given = "given" in mode
    mask = None if mode == "full" else DROPPED if given else TRIANGLE
    if (
        options.get("sparse_mode") == 6
    ):  # the triangle over a block: left half kept, right half dropped
        mask = torch.cat((TRIANGLE, torch.arange(2048).expand(1024, 2048) >= 1024))
    leaves = [
        rand(2, n, s, SIZE, seed=n + s).to(dtype).double().requires_grad_()
        for n, s in ((HEADS, SQ), (KV_HEADS, SKV), (KV_HEADS, SKV + 0))
    ]
    inputs = [x.detach().to(dtype).npu().requires_grad_() for x in leaves]
    out, most, total, *_ = torch_npu.npu_fusion_attention(
        *inputs,
        HEADS,
        "BNSD",
        scale=0.4,
        atten_mask=None if mask is None else mask.npu(),
        **options,
    )
    each = [
        attend(*(x[b] for x in leaves), 0.4, seen[b] if isinstance(seen, list) else seen)
        for b in range(2)
    ]
    wanted = [torch.stack(x) for x in zip(*each)]
    check((out, most[..., 0], total[..., 7]), wanted, inputs, leaves, dtype)


def test_bias_and_sink():
    leaves = [
        rand(1, HEADS, SQ, SIZE, seed=1), rand(1, KV_HEADS, SKV, SIZE, seed=2),
        rand(1, KV_HEADS, SKV, SIZE, seed=3), rand(1, HEADS, SQ, SKV, seed=4), rand(HEADS, seed=5),
    ]  # fmt: skip
    leaves = [x.float().double().requires_grad_() for x in leaves]
    inputs = [x.detach().float().npu().requires_grad_() for x in leaves]
    out, most, total, *_ = torch_npu.npu_fusion_attention(
        *inputs[:3], HEADS, "BNSD", pse=inputs[3], sink=inputs[4], scale=-0.4
    )
    wanted = attend(*(x[0] for x in leaves[:3]), -0.4, bias=leaves[3][0], sink=leaves[4])
    wanted = [x[None] for x in wanted]
    check((out, most[..., 0], total[..., 0]), wanted, inputs, leaves, torch.float32)


@pytest.mark.parametrize("mode", [2, 3, 7, 8])
def test_packed(mode):
    q_ends, k_ends = [70, 70, 300], [600, 640, 900]
    leaves = [rand(n, h, SIZE, seed=h).float().double().requires_grad_() for n, h in ((310, HEADS), (905, KV_HEADS), (905, KV_HEADS))]  # fmt: skip
    inputs = [x.detach().float().npu().requires_grad_() for x in leaves]
    out, most, total, *_ = torch_npu.npu_fusion_attention(
        *inputs, HEADS, "TND", scale=0.4, atten_mask=TRIANGLE.npu(), sparse_mode=mode,
        pre_tockens=50, next_tockens=5, actual_seq_qlen=q_ends, actual_seq_kvlen=k_ends,
        softmax_layout="TND",
    )  # fmt: skip
    parts = []
    for i, (a, b, c, d) in enumerate(zip([0, *q_ends], q_ends, [0, *k_ends], k_ends)):
        sq, skv = b - a, d - c
        banded = (mode == 7 and i == 2) or (mode == 8 and i == 0)
        shift = 0 if mode in (2, 8) and not banded else skv - sq
        seen = band(sq, skv, shift - 50 if banded else -skv, shift + 5 if banded else shift)
        q, k, v = (x.transpose(0, 1) for x in (leaves[0][a:b], leaves[1][c:d], leaves[2][c:d]))
        parts.append([x.transpose(0, 1) for x in attend(q, k, v, 0.4, seen)])
    wanted = [torch.cat(x) for x in zip(*parts)]
    check((out[:300], most[:300, :, 0], total[:300, :, 0]), wanted, inputs, leaves, torch.float32)
    assert not out[300:].any() and not total[300:].any()


def test_what_is_no_number_stays_none():
    x = rand(1, 1, 8, 8).float()
    x[0, 0, 2, 3] = math.nan
    q = x.npu()
    clean = rand(1, 1, 8, 8, seed=1).float().npu()
    out = torch_npu.npu_fusion_attention(q, clean, clean, 1, "BNSD")[0].cpu()
    assert out[0, 0, 2].isnan().all() and not out[0, 0, [0, 1, 3, 4, 5, 6, 7]].isnan().any()
    assert torch_npu.npu_fusion_attention(clean, q, clean, 1, "BNSD")[0].isnan().all()
