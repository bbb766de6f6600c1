# SPDX-License-Identifier: Apache-2.0
"""Delta rule, cached convolutions, hyper-connections, routing: wrong arguments are named, nothing is written."""

import pytest
import torch
import torch_npu
from table import DEVICE, rand


def floats(*size, dtype=torch.float32):
    return rand(*size).to(dtype).to(DEVICE)


def ints(*numbers, dtype=torch.int32):
    return torch.tensor(numbers, dtype=dtype, device=DEVICE)


Q, V, STATE, BETA = floats(5, 2, 4), floats(5, 4, 6), floats(3, 4, 6, 4), floats(5, 4)
SLOTS = ints(0, 1, 2, 0, 1)


def recurrent(q=Q, v=V, state=STATE, scale=1.0, lengths=(2, 3), slots=SLOTS, **rest):
    return torch_npu.npu_recurrent_gated_delta_rule(
        q, q, v, state, scale=scale, actual_seq_lengths=ints(*lengths), ssm_state_indices=slots, **rest
    )  # fmt: skip


def chunk(beta=BETA, state=STATE[:2], lengths=(2, 3), scale=1.0, **rest):
    lengths = None if lengths is None else ints(*lengths)
    return torch_npu.npu_chunk_gated_delta_rule(
        Q, Q, V, beta=beta, initial_state=state, actual_seq_lengths=lengths, scale=scale, **rest
    )


X, WEIGHT, LINES = floats(7, 4), floats(3, 4), floats(5, 2, 4)


def conv(x=X, weight=WEIGHT, states=LINES, starts=(0, 3, 7), **rest):
    starts = None if starts is None else ints(*starts)
    return torch_npu.npu_fused_causal_conv1d(x, weight, states, query_start_loc=starts, **rest)


MASKED = floats(5, 2, 4)
STREAMS, PHI, RATES, BIAS = floats(5, 4, 6), floats(24, 24), floats(3), floats(24)
LAYER, POST = floats(5, 6), floats(5, 4)
PAIRS = ints([2, 0], [1, 2], [0, 2])


def routed(x=None, pairs=PAIRS, **rest):
    x = floats(3, 8) if x is None else x
    return torch_npu.npu_moe_init_routing_quant(x, pairs, **{"expert_num": 3, **rest})


def blocks(table, first, last, start):
    return conv(
        cache_indices=ints(*table), block_size=4, block_idx_first_scheduled_token=ints(*first),
        block_idx_last_scheduled_token=ints(*last), initial_state_idx=ints(*start),
    )  # fmt: skip


REFUSED = [
    (lambda: recurrent(scale=None), "scale cannot be empty"),
    (lambda: recurrent(v=V[0]), "value dim should be 3, but got 2"),
    (lambda: recurrent(state=STATE[0]), "state dim should be 4, but got 3"),
    (lambda: recurrent(v=floats(5, 3, 6), state=floats(3, 3, 6, 4)), "value has 3 heads and key 2"),
    (lambda: recurrent(lengths=(4, 3)), "actual_seq_lengths is [4, 3]; allowed: lengths that add up to at most 5"),
    (lambda: recurrent(lengths=(-1, 3)), "actual_seq_lengths is [-1, 3]"),
    (lambda: recurrent(slots=ints(0, 1, 3, 0, 1)), "ssm_state_indices is [0, 1, 3, 0, 1]; allowed: 0 to 2"),
    (lambda: recurrent(slots=ints(0, 1)), "ssm_state_indices has shape [2]; allowed: [5]"),
    (lambda: recurrent(num_accepted_tokens=ints(3, 1)), "num_accepted_tokens is [3, 1]; allowed: 1 to"),
    (lambda: recurrent(num_accepted_tokens=ints(1)), "num_accepted_tokens has shape [1]; allowed: [2]"),
    (lambda: recurrent(g=floats(5, 2)), "g has shape [5, 2]"),
    (lambda: chunk(beta=None), "beta cannot be empty"),
    (lambda: chunk(lengths=None), "actual_seq_lengths cannot be empty"),
    (lambda: chunk(state=STATE[0]), "initial_state dim should be 4, but got 3"),
    (lambda: chunk(state=STATE), "actual_seq_lengths has 2 elements and initial_state 3 states"),
    (lambda: conv(bias=WEIGHT[0]), "argument bias is not supported here"),
    (lambda: conv(activation="silu"), "activation is 'silu'"),
    (lambda: conv(starts=None), "x has 2 dimensions; allowed: 2, (T, dim), with query_start_loc"),
    (lambda: conv(starts=(0, 3, 8)), "query_start_loc is [0, 3, 8]; it rises from 0 to x's 7 rows"),
    (lambda: conv(starts=(0, 8, 7)), "query_start_loc is [0, 8, 7]"),
    (lambda: conv(weight=floats(5, 4)), "conv_states has shape [5, 2, 4]; allowed: (lines, at least 4, 4)"),
    (lambda: conv(cache_indices=ints(0, 5)), "cache_indices names the lines [0, 5]; allowed: 0 to 4"),
    (lambda: conv(cache_indices=ints(0, -2)), "cache_indices names the lines [0, -2]"),
    (lambda: conv(cache_indices=ints(0)), "cache_indices has shape [1]"),
    (lambda: conv(num_accepted_tokens=ints(1, 2)), "num_accepted_tokens is [1, 2]; allowed: 1 to 1"),
    (lambda: conv(conv_mode="other"), "conv_mode is 'other'"),
    (lambda: conv(residual_connection=2), "residual_connection is 2"),
    (lambda: conv(initial_state_idx=ints(0, 0)), "are given together"),
    (lambda: blocks(([0, 1], [2, 3]), (0, 0), (1, 2), (0, 0)), "allowed: 0 to 1, the columns of cache_indices"),
    (lambda: blocks(([0, 9], [2, 3]), (0, 0), (1, 1), (0, 0)), "cache_indices names the lines [9, 3]"),
    (lambda: torch_npu.npu_masked_causal_conv1d(MASKED[0], WEIGHT), "input has 2 dimensions"),
    (lambda: torch_npu.npu_masked_causal_conv1d(MASKED, WEIGHT[:, :3]), "weight has shape [3, 3]; allowed: (W, 4)"),
    (lambda: torch_npu.npu_masked_causal_conv1d(MASKED, WEIGHT, mask=ints([1, 1])), "mask has shape [1, 2]; it must be [2, 5]"),
    (lambda: torch_npu.npu_mhc_post(STREAMS, None, LAYER, POST[:, :3]), "h_post has shape [5, 3]"),
    (lambda: torch_npu.npu_mhc_post(STREAMS.int(), None, LAYER, POST), "x is torch.int32"),
    (lambda: torch_npu.npu_mhc_post_backward(LAYER, STREAMS, None, LAYER, POST), "grad_y shape must be the same as x shape."),
    (lambda: torch_npu.npu_mhc_pre(STREAMS, PHI, RATES[:1], BIAS), "Input alpha must have 3 or 2 elements, but got 1"),
    (lambda: torch_npu.npu_mhc_pre(STREAMS, PHI[:3], RATES, BIAS), "phi has shape [3, 24]"),
    (lambda: torch_npu.npu_mhc_sinkhorn(floats(2, 5, 5)), "x has shape [2, 5, 5]"),
    (lambda: torch_npu.npu_mhc_sinkhorn(floats(2, 4, 4), num_iters=0), "num_iters is 0; allowed: 1 to 100"),
    (lambda: torch_npu.npu_mhc_sinkhorn_backward(floats(2, 4, 4), floats(7), floats(3)), "norm has 7 elements and sum 3"),
    (lambda: routed(floats(8)), "Input tensor 'x' must be 2-dimensional, but got dimension 1"),
    (lambda: routed(pairs=PAIRS[0]), "Input tensor 'expert_idx' must be 2-dimensional, but got dimension 1"),
    (lambda: routed(floats(2, 8)), "The number of rows in input 'x' (2) must match the number of rows in 'expert_idx' (3)"),
    (lambda: routed(drop_pad_mode=2), "Parameter 'drop_pad_mode' must be 0 or 1, but got: 2"),
    (lambda: routed(quant_mode=2), "Parameter 'quant_mode' must be 0 or 1, but got: 2"),
    (lambda: routed(expert_tokens_num_mode=3), "Parameter 'expert_tokens_num_mode' must be 0, 1 or 2, but got: 3"),
    (lambda: routed(quant_mode=0), "scale and offset of one number each must be given"),
    (lambda: routed(drop_pad_mode=1), "expert_capacity is 0"),
]  # fmt: skip


@pytest.mark.parametrize("call, said", REFUSED, ids=[said[:40] for _, said in REFUSED])
def test_refused(call, said):
    before = [t.clone() for t in (STATE, LINES)]
    with pytest.raises((RuntimeError, NotImplementedError)) as caught:
        call()
    text = str(caught.value)
    assert said in text and "npu_" in text and "ERR0100" in text
    assert all(torch.equal(a, b) for a, b in zip(before, (STATE, LINES), strict=True))


def test_sequences_of_one_length_or_more_and_of_none():
    """The chunked rule and the recurrence agree over borders of chunks."""
    lengths, heads, dv, dk = (70, 0, 129, 1), 4, 6, 8
    tokens = sum(lengths)
    q, k = (torch.nn.functional.normalize(floats(tokens, 2, dk), dim=-1) for _ in range(2))
    v, beta = floats(tokens, heads, dv), torch.rand(tokens, heads, device=DEVICE)
    g = -torch.rand(tokens, heads, device=DEVICE)
    start = floats(len(lengths), heads, dv, dk)
    slots = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths)).int().to(DEVICE)
    out, state = torch_npu.npu_chunk_gated_delta_rule(
        q, k, v, beta=beta, g=g, initial_state=start, actual_seq_lengths=ints(*lengths), scale=0.5
    )
    want, wanted_state = torch_npu.npu_recurrent_gated_delta_rule_functional(
        q, k, v, start, beta=beta, g=g, actual_seq_lengths=ints(*lengths), ssm_state_indices=slots, scale=0.5
    )  # fmt: skip
    torch.testing.assert_close(out.float(), want.float(), rtol=2e-2, atol=1e-3)
    torch.testing.assert_close(state, wanted_state, rtol=1e-4, atol=1e-5)


def test_sinkhorn_gives_what_its_backward_reads():
    x, seed = floats(3, 6, 6).double().requires_grad_(), floats(3, 6, 6).double()
    y, norm, total = torch_npu.npu_mhc_sinkhorn(x, num_iters=4, out_flag=1)
    (want,) = torch.autograd.grad(y, x, seed)
    found = torch_npu.npu_mhc_sinkhorn_backward(seed, norm, total)
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-6)
    assert torch_npu.npu_mhc_sinkhorn(x.detach())[1:] == (None, None)
