# SPDX-License-Identifier: Apache-2.0
"""Operators that draw random numbers or write into arguments, and networks of torch.nn as oracles."""

import math

import cases_rnn as rnn
import cases_rope_cache as rope
import pytest
import torch
import torch_npu
from table import DEVICE, ints, rand


def dev(x):
    return (
        x.to(torch.float32).to(DEVICE, copy=True)
        if x.is_floating_point()
        else x.to(DEVICE, copy=True)
    )


def near(got, want):
    torch.testing.assert_close(got.cpu().double(), want.double(), rtol=1e-5, atol=1e-5)


# ---- written into arguments


@pytest.mark.parametrize("mode", ["contiguous", "page"])
def test_rope_quant_kvcache_writes_its_caches(mode):
    d, splits = 8, [16, 8, 8]
    x, cos, sin = rope.coarse(2, 3, 32), rope.coarse(2, 3, 1, d), rope.coarse(2, 3, 1, d)
    caches = [ints(-9, 9, 3, 4, 1, d, dtype=torch.int8) for _ in range(2)]
    indices = torch.tensor([7, 0, 11, 4, 2, 9] if mode == "page" else [1, 0])
    scales = [torch.full((d,), 8.0) for _ in range(2)]
    want = rope.rope_quant(x, cos, sin, *caches, indices, *scales, splits, cache_mode=mode)
    written = [c.to(DEVICE, copy=True) for c in caches]
    out = torch_npu.npu_rope_quant_kvcache(
        dev(x), dev(cos), dev(sin), *written, dev(indices), *map(dev, scales), splits,
        cache_mode=mode,
    )  # fmt: skip
    for got, expected, returned in zip(written, want[3:], out[3:], strict=True):
        assert torch.equal(got.cpu(), expected)
        assert torch.equal(returned, got)


def test_qkv_rms_norm_rope_cache_writes_query_and_caches():
    inputs = rope.qkv_arguments(2, 3, (4, 2, 2))
    want = rope.qkv_cache(*inputs)
    given = [dev(x) if isinstance(x, torch.Tensor) else x for x in inputs]
    out = torch_npu.npu_qkv_rms_norm_rope_cache(*given)
    assert [x.numel() for x in out] == [0, 0, 0]
    for got, expected in zip(given[6:9], want[3:], strict=True):
        near(got, expected)
    again = [dev(x) if isinstance(x, torch.Tensor) else x for x in inputs]
    torch_npu.npu_qkv_rms_norm_rope_cache_functional(*again)
    for got, before in zip(again[6:9], inputs[6:9], strict=True):
        near(got, before)


def advanced(tokens, sampled, positions, lengths, slots, tables, seqs, queries, size):
    """vLLM's step by Ascend's formula, which adds i rows' stride to a place in the flat table."""
    out = [x.clone() for x in (tokens, positions, lengths, slots)]
    tokens, positions, lengths, slots = out
    for i in range(seqs):
        if i >= queries:
            tokens[i], positions[i], slots[i] = 0, 0, -1
            continue
        at = int(lengths[i])
        tokens[i], positions[i], lengths[i] = sampled.flatten()[i], at, at + 1
        page = int(tables.flatten()[at // size]) + tables.shape[1] * i
        slots[i] = page * size + at % size
    return out


@pytest.mark.parametrize("queries", [4, 2, 0])
def test_advance_step_flashattn(queries):
    seqs, size, whole = 4, 4, torch.int64
    tokens, positions, slots = (ints(0, 9, seqs, dtype=whole) for _ in range(3))
    lengths = torch.tensor([1, 7, 4, 3])
    sampled, tables = ints(0, 99, queries, 1), ints(0, 20, seqs, 3)
    given = [dev(x) for x in (tokens, sampled, positions, lengths, slots, tables)]
    assert torch_npu.npu_advance_step_flashattn(*given, seqs, queries, size) is None
    want = advanced(tokens, sampled, positions, lengths, slots, tables, seqs, queries, size)
    for name, got, expected in zip(
        ("tokens", "positions", "lengths", "slots"),
        (given[0], given[2], given[3], given[4]),
        want,
        strict=True,
    ):
        rows = queries if name == "lengths" else seqs
        assert torch.equal(got.cpu()[:rows], expected[:rows]), name


def test_advance_step_with_speculation():
    """Each sequence has 1 + spec entries; the last accepted token leads, the guesses follow."""
    seqs, spec, size = 3, 2, 4
    each = 1 + spec
    tokens, slots = ints(0, 9, seqs * each), ints(0, 9, seqs * each)
    positions = torch.tensor([3, 4, 5, 6, 7, 8, 1, 2, 3])
    lengths = positions + 1
    sampled = torch.tensor([[11, -1, -1], [21, 22, -1], [31, 32, 33]])
    accepted = torch.tensor([0, 1, 2])
    guesses, tables = ints(0, 99, seqs, spec), ints(0, 20, seqs, 4)
    given = [dev(x) for x in (tokens, sampled, positions, lengths, slots, tables)]
    torch_npu.npu_advance_step_flashattn(
        *given, seqs, seqs, size, spec_token=dev(guesses), accepted_num=dev(accepted)
    )
    moved = positions + (accepted + 1).repeat_interleave(each)
    pages = tables.repeat_interleave(each, 0)[torch.arange(seqs * each), moved // size]
    led = torch.tensor([11, 22, 33])[:, None]
    assert torch.equal(given[0].cpu(), torch.cat((led, guesses), 1).flatten())
    assert torch.equal(given[2].cpu(), moved)
    assert torch.equal(given[3].cpu(), moved + 1)
    assert torch.equal(given[4].cpu(), pages * size + moved % size)


# ---- random


def seeded(call, seed=5):
    torch.manual_seed(seed)
    torch.npu.manual_seed(seed)
    return call()


def test_sim_exponential_has_its_distribution():
    def draw():
        return torch_npu.npu_sim_exponential_(torch.zeros(4096, device=DEVICE), 2.0)

    x = seeded(draw).cpu()
    assert torch.equal(x, seeded(draw).cpu()) and not torch.equal(x, seeded(draw, 6).cpu())
    assert (x >= 0).all() and x.isfinite().all()
    below = (torch.arange(4096) + 0.5) / 4096
    exact = 1 - torch.exp(-2.0 * x.sort().values)
    assert (exact - below).abs().max() < 0.035  # Kolmogorov's distance; 0.03 is met by 99.9 %


def test_sim_exponential_of_limits():
    x = torch.ones(7, device=DEVICE)
    assert torch_npu.npu_sim_exponential_(x, math.inf) is x
    assert torch.equal(x.cpu(), torch.zeros(7))
    for rate in (0.0, -1.0):
        with pytest.raises(RuntimeError, match=r"expects lambd > 0.0, but found lambd="):
            torch_npu.npu_sim_exponential_(x, rate)
    assert torch.equal(x.cpu(), torch.zeros(7))


@pytest.mark.parametrize("shape", [(40,), (5, 8), (2, 3, 7), (2, 2, 2, 5), (1, 2, 2, 2, 3)])
@pytest.mark.parametrize("count", [4, 64])
def test_random_choice_with_mask(shape, count):
    x = rand(*shape) > 0
    places, mask = torch_npu.npu_random_choice_with_mask(x.to(DEVICE), count)
    assert places.dtype == torch.int32 and mask.dtype == torch.bool
    assert places.shape == (count, len(shape)) and mask.shape == (count,)
    kept = min(count, int(x.sum()))
    assert int(mask.sum()) == kept and bool(mask.cpu()[:kept].all())
    chosen = {tuple(row) for row in places.cpu()[:kept].tolist()}
    assert len(chosen) == kept and all(x[row] for row in chosen)
    assert not places.cpu()[kept:].any()


def test_random_choice_with_mask_draws():
    x = torch.ones(64, dtype=torch.bool, device=DEVICE)
    seen = {
        tuple(torch_npu.npu_random_choice_with_mask(x, 3)[0].flatten().tolist()) for _ in range(8)
    }
    assert len(seen) > 4
    empty = torch_npu.npu_random_choice_with_mask(
        torch.zeros(9, dtype=torch.bool, device=DEVICE), 2
    )
    assert not empty[0].any() and not empty[1].any()


@pytest.mark.parametrize(
    "positives, negatives, images, share",
    [
        (40, 60, 32, 0.25),
        (3, 60, 32, 0.25),
        (40, 5, 32, 0.5),
        (0, 9, 4, 0.5),
        (9, 0, 4, 0.5),
        (5, 5, 99, 0.3),
    ],
)
def test_sub_sample(positives, negatives, images, share):
    labels = torch.cat((ints(1, 6, positives), torch.zeros(negatives), -torch.ones(4))).int()
    labels = labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))]
    out = torch_npu.npu_sub_sample(labels.to(DEVICE), images, share).cpu()
    assert out.dtype == torch.int32
    assert ((out == labels) | (out == -1)).all()
    kept = min(positives, int(images * share))
    assert int((out > 0).sum()) == kept
    assert int((out == 0).sum()) == min(negatives, images - kept)


def test_sub_sample_draws():
    labels = torch.ones(64, dtype=torch.int32, device=DEVICE)
    seen = {tuple(torch_npu.npu_sub_sample(labels, 8, 0.5).tolist()) for _ in range(8)}
    assert len(seen) > 4


def test_multinomial_sampling_follows_the_kept_shares():
    rows = 4000
    logits = torch.log(torch.tensor([0.4, 0.05, 0.3, 0.05, 0.2])).repeat(rows, 1)
    k = torch.full((rows,), 3, dtype=torch.int32)
    p = torch.ones(rows)

    def draw():
        return torch_npu.npu_top_k_top_p_sample(
            logits.to(DEVICE), k.to(DEVICE), p.to(DEVICE), post_sample="multiNomial"
        )[0].cpu()

    found = seeded(draw)
    assert torch.equal(found, seeded(draw)) and not torch.equal(found, seeded(draw, 6))
    share = torch.bincount(found, minlength=5) / rows
    assert (share - torch.tensor([4, 0, 3, 0, 2]) / 9).abs().max() < 0.04


# ---- others


def test_empty_with_swapped_memory():
    x = torch_npu.empty_with_swapped_memory(
        [2, 3], dtype=torch.float16, device=torch.device(DEVICE)
    )
    assert x.shape == (2, 3) and x.dtype == torch.float16 and x.device.type == DEVICE
    x.fill_(3)
    assert torch.equal(x.cpu(), torch.full((2, 3), 3.0).half())


def test_bert_apply_adam_needs_out():
    with pytest.raises(RuntimeError, match="npu_bert_apply_adam is not implemented for Tensor"):
        torch_npu.npu_bert_apply_adam(0.1, 0.9, 0.99, 1e-6, dev(rand(2)), 1.0, 1.0, 0.0)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_layers_are_those_of_torch(kind):
    """Outputs and the gradients of every state and parameter, against torch.nn on the CPU."""
    network = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](
        4, 3, 2, bidirectional=True
    ).double()
    generator = torch.Generator().manual_seed(4)
    states = [
        torch.rand(4, 2, 3, generator=generator).double() for _ in range(2 if kind == "lstm" else 1)
    ]
    x = rand(5, 2, 4)

    def run(call, device):
        leaves = [
            t.detach().to(device, copy=True).requires_grad_()
            for t in (x, *states, *network.parameters())
        ]
        out = call(leaves[0], leaves[1 : 1 + len(states)], leaves[1 + len(states) :])
        torch.manual_seed(0)
        total = sum((o * torch.rand(o.shape, dtype=torch.float64).to(device)).sum() for o in out)
        return [o.detach().cpu() for o in out] + [
            g.cpu() for g in torch.autograd.grad(total, leaves)
        ]

    def theirs(x, states, params):
        named = dict(zip([n for n, _ in network.named_parameters()], params, strict=True))
        out, last = torch.func.functional_call(
            network, named, (x, tuple(states) if kind == "lstm" else states[0])
        )
        return [out, *last] if kind == "lstm" else [out, last]

    def ours(x, states, params):
        flags = (True, 2, 0.0, True, True)
        if kind == "lstm":
            return torch.ops.npu._lstm_npu(x, states, params, *flags)[:3]
        return torch.ops.npu._gru_npu(x, states[0], params, *flags)[:2]

    for got, want in zip(run(ours, DEVICE), run(theirs, "cpu"), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9)


def test_layers_refuse_dropout():
    x, states = rand(2, 2, 4), [rand(1, 2, 3), rand(1, 2, 3)]
    params = rnn.layer_params(4, 4, 3, 1, 1, True)
    with pytest.raises(NotImplementedError, match=r"(?s)dropout.*ERR01007"):
        torch.ops.npu._lstm_npu(
            dev(x), [dev(s) for s in states], [dev(p) for p in params], True, 1, 0.5, True, False
        )
