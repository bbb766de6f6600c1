# SPDX-License-Identifier: Apache-2.0
"""Gated delta rule, causal convolutions with cached state, hyper-connections, routing with int8."""

import torch
from cases_experts import MAP, ORDER, PAD, unpermute_map
from table import FLOATS, add, int8, rand, through

ONE = (torch.float32,)
SHORT = (torch.float32, torch.bfloat16)


def whole(*values):
    return torch.tensor(values, dtype=torch.int32)


# ---- gated delta rule: S *= e^g; S[:, j] *= e^gk[j]; S += beta (v - S k) k^T; o = scale S q


def step(S, q, k, v, beta, g, gk, scale):
    S = S * torch.exp(g) * torch.exp(gk)[None, :]
    S = S + torch.outer(beta * (v - S @ k), k)
    return S, scale * (S @ q)


def walk(S, q, k, v, beta, g, gk, scale, rows, after=None):
    """The tokens `rows` of all value heads from state S (Nv, Dv, Dk): (outputs, last state)."""
    heads, ratio, outs = v.shape[1], v.shape[1] // k.shape[1], []
    for t in rows:
        steps = []
        for h in range(heads):
            steps.append(
                step(
                    S[h],
                    q[t, h // ratio],
                    k[t, h // ratio],
                    v[t, h],
                    torch.tensor(1.0, dtype=torch.float64) if beta is None else beta[t, h].double(),
                    torch.tensor(0.0, dtype=torch.float64) if g is None else g[t, h].double(),
                    torch.zeros(k.shape[2], dtype=torch.float64)
                    if gk is None
                    else gk[t, h].double(),
                    scale,
                )
            )
        S = torch.stack([s for s, _ in steps])
        outs.append(torch.stack([o for _, o in steps]))
        if after is not None:
            after(t, S)
    return outs, S


def recurrent(
    q, k, v, state, *, beta=None, scale=None, actual_seq_lengths=None, ssm_state_indices=None,
    num_accepted_tokens=None, g=None, gk=None,
):  # fmt: skip
    lengths, slots = actual_seq_lengths.tolist(), ssm_state_indices.tolist()
    outs, start = [], 0
    for b, length in enumerate(lengths):
        if length == 0:
            continue
        accepted = 1 if num_accepted_tokens is None else int(num_accepted_tokens[b])
        S = state[slots[start + accepted - 1]].double()

        def keep(t, S):
            state[slots[t]] = S.to(state.dtype)

        outs += walk(S, q, k, v, beta, g, gk, scale, range(start, start + length), keep)[0]
        start += length
    return torch.stack(outs) if outs else torch.zeros_like(v)


def recurrent_functional(q, k, v, state, **kwargs):
    state = state.clone()
    return recurrent(q, k, v, state, **kwargs), state


def gates(tokens, heads):
    """Decays below 1, in float32 whatever the inputs are."""
    return -rand(tokens, heads, low=0, high=1).float()


TWO = dict(
    beta=rand(5, 4, low=0, high=1),
    scale=0.25,
    actual_seq_lengths=whole(2, 3),
    ssm_state_indices=whole(3, 1, 0, 2, 4),
)
for op, oracle, writes in (
    ("npu_recurrent_gated_delta_rule", recurrent, (3,)),
    ("npu_recurrent_gated_delta_rule_functional", recurrent_functional, ()),
):
    inputs = (rand(5, 2, 8) / 4, rand(5, 2, 8) / 4, rand(5, 4, 6), rand(6, 4, 6, 8))
    settings = dict(dtypes=SHORT, tolerance=4e-2, writes=writes)
    add(op, oracle, *inputs, g=gates(5, 4), label="two", **TWO, **settings)
    add(
        op, oracle, *inputs, g=gates(5, 4), gk=-rand(5, 4, 8, low=0, high=1),
        num_accepted_tokens=whole(2, 3), label="accepted", **TWO, **settings,
    )  # fmt: skip
    plain_gate = {**TWO, "beta": None}
    add(op, oracle, *inputs, label="no-gates", **plain_gate, **settings)
    add(
        op, oracle, *inputs[:2], inputs[2], inputs[3], g=gates(5, 4), label="empty-sequence",
        **{**TWO, "actual_seq_lengths": whole(0, 5, 0)}, **settings,
    )  # fmt: skip


def chunked(q, k, v, *, beta, initial_state, actual_seq_lengths, scale, g=None):
    outs, states, start = [], [], 0
    for b, length in enumerate(actual_seq_lengths.tolist()):
        rows = range(start, start + length)
        out, S = walk(initial_state[b].double(), q, k, v, beta, g, None, scale, rows)
        outs += out
        states.append(S)
        start += length
    return torch.stack(outs), torch.stack(states)


for label, lengths, tokens in (("two", (3, 4), 7), ("long", (70, 1), 71), ("empty", (0, 3), 3)):
    add(
        "npu_chunk_gated_delta_rule", chunked, rand(tokens, 2, 8) / 4, rand(tokens, 2, 8) / 4,
        rand(tokens, 4, 6), beta=rand(tokens, 4, low=0, high=1), initial_state=rand(2, 4, 6, 8),
        actual_seq_lengths=whole(*lengths), scale=0.25, g=gates(tokens, 4), label=label,
        dtypes=SHORT, tolerance=6e-2,
    )  # fmt: skip


# ---- causal convolution of the last K tokens of a channel


def fused_conv(
    x, weight, states, *, query_start_loc=None, cache_indices=None, num_accepted_tokens=None,
    pad_slot_id=-1, residual_connection=0, num_computed_tokens=None, block_size=128,
    block_idx_first_scheduled_token=None, block_idx_last_scheduled_token=None,
    initial_state_idx=None, conv_mode="default", skipped=0,
):  # fmt: skip
    K, places = weight.shape[0], states.shape[1]
    rows = x.reshape(-1, x.shape[-1])
    ends = (
        [b * x.shape[1] for b in range(x.shape[0] + 1)]
        if query_start_loc is None
        else query_start_loc.tolist()
    )
    y = rows.clone() if skipped else torch.zeros_like(rows)
    paged = block_idx_last_scheduled_token is not None
    for b in range(len(ends) - 1):
        tokens = rows[ends[b] : ends[b + 1]]
        L = tokens.shape[0]
        line = b if cache_indices is None else cache_indices[b]
        line = int(line[initial_state_idx[b]] if paged else line)
        if line == pad_slot_id or L == 0:
            continue
        computed = None if num_computed_tokens is None else int(num_computed_tokens[b])
        if computed == 0:
            offset, cached = 0, torch.zeros(K - 1, x.shape[-1], dtype=x.dtype)
        else:
            offset = (
                places - (K - 1) if num_accepted_tokens is None else int(num_accepted_tokens[b]) - 1
            )
            cached = states[line, : offset + K - 1].clone()
        p = torch.cat([cached, tokens])
        last = int(cache_indices[b, block_idx_last_scheduled_token[b]]) if paged else line
        n = min(places, p.shape[0])
        states[last, places - n :] = p[p.shape[0] - n :]
        p = p[offset:]
        for i in range(L):
            total = sum(weight[k] * p[i + k] for k in range(K))
            y[ends[b] + i] = total + tokens[i] if residual_connection == 1 else total
        if conv_mode == "pangu":
            y[ends[b] : ends[b] + min(max(K - 1 - computed, 0), L)] = 0
        if paged:
            first = int(block_idx_first_scheduled_token[b])
            count = int(block_idx_last_scheduled_token[b]) - first
            rest = (L - (block_size - computed % block_size)) % block_size
            full = L - rest - (block_size if rest == 0 else 0)
            for c in range(count):
                q = full - (count - c - 1) * block_size
                states[cache_indices[b, first + c], places - (K - 1) :] = p[q : q + K - 1]
    return y.reshape(x.shape)


def fused_conv_in_place(x, weight, states, **kwargs):
    x.copy_(fused_conv(x, weight, states, skipped=1, **kwargs))


CONVOLUTIONS = {
    "batch": (rand(2, 3, 4), rand(3, 4), rand(3, 2, 4), {}),
    "residual": (rand(2, 1, 4), rand(3, 4), rand(3, 5, 4), {"residual_connection": 1}),
    "packed": (
        rand(7, 4), rand(3, 4), rand(5, 2, 4),
        {"query_start_loc": whole(0, 1, 4, 7), "cache_indices": whole(4, -1, 2)},
    ),
    "fresh": (
        rand(5, 4), rand(4, 4), rand(5, 3, 4),
        {
            "query_start_loc": whole(0, 1, 5), "cache_indices": whole(3, 0),
            "num_computed_tokens": whole(7, 0),
        },
    ),
    "accepted": (
        rand(2, 3, 4), rand(3, 4), rand(4, 5, 4),
        {"cache_indices": whole(2, 1), "num_accepted_tokens": whole(1, 3)},
    ),
    "pangu": (
        rand(6, 4), rand(4, 4), rand(3, 3, 4),
        {
            "query_start_loc": whole(0, 2, 6), "cache_indices": whole(1, 2),
            "num_computed_tokens": whole(0, 1), "conv_mode": "pangu",
        },
    ),
    "blocks": (
        rand(11, 4), rand(3, 4), rand(9, 2, 4),
        {
            "query_start_loc": whole(0, 2, 11),
            "cache_indices": torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int32),
            "num_computed_tokens": whole(3, 4), "block_size": 4,
            "block_idx_first_scheduled_token": whole(0, 0),
            "block_idx_last_scheduled_token": whole(1, 2), "initial_state_idx": whole(0, 0),
        },
    ),
}  # fmt: skip
for label, (x, weight, states, rest) in CONVOLUTIONS.items():
    add("npu_fused_causal_conv1d", fused_conv, x, weight, states, label=label, writes=(2,), **rest)
    add(
        "npu_fused_causal_conv1d_v2", fused_conv_in_place, x, weight, states, label=label,
        writes=(0, 2), **rest,
    )  # fmt: skip


def masked_conv(x, weight, *, mask=None):
    rows = []
    for s in range(x.shape[0]):
        total = torch.zeros_like(x[0])
        for k in range(weight.shape[0]):
            at = s - (weight.shape[0] - 1 - k)
            total = total + (weight[k] * x[at] if at >= 0 else 0)
        rows.append(total)
    y = torch.stack(rows)
    return y if mask is None else y * mask.T[..., None]


KEPT = torch.tensor([[1, 1, 0, 1, 1], [0, 1, 1, 1, 0]], dtype=torch.bool)
M = "npu_masked_causal_conv1d"
for label, width in (("three", 3), ("one", 1), ("wider", 6)):
    add(M, masked_conv, rand(5, 2, 4), rand(width, 4), mask=KEPT, label=label, grad=(0, 1))
    add(
        f"{M}_backward", through(masked_conv, (0, 1)), rand(5, 2, 4), rand(5, 2, 4),
        rand(width, 4), mask=KEPT, label=label,
    )  # fmt: skip
add(M, masked_conv, rand(5, 2, 4), rand(3, 4), label="no-mask", grad=(0, 1))
add(M, masked_conv, rand(1, 1, 1), rand(1, 1), label="element")


# ---- hyper-connections


def exactly(*tensors):
    """Arguments that are float32 in every dtype of the case, in float64."""
    return [None if t is None else t.double() for t in tensors]


def post(x, h_res, h_out, h_post):
    h_res, h_post = exactly(h_res, h_post)
    mixed = x if h_res is None else torch.einsum("...ij,...id->...jd", h_res, x)
    return mixed + h_post[..., :, None] * h_out[..., None, :]


POST = "npu_mhc_post"
for label, lead in (("batch", (2, 3)), ("packed", (5,)), ("empty", (0,)), ("element", (1,))):
    n, d = (1, 1) if label == "element" else (4, 6)
    tensors = (rand(*lead, n, d), rand(*lead, n, n), rand(*lead, d), rand(*lead, n))
    add(POST, post, *tensors, label=label, grad=(0, 1, 2, 3), keep=(1, 3))
    add(
        f"{POST}_backward", through(post, (0, 1, 2, 3)), rand(*lead, n, d), *tensors, label=label,
        keep=(2, 4),
    )  # fmt: skip
add(POST, post, rand(3, 4, 6), None, rand(3, 6), rand(3, 4), label="no-res", keep=(3,), grad=(0,))


def pre(x, phi, alpha, bias, *, gamma=None, norm_eps=1e-6, hc_eps=1e-6, out_flag=0):
    phi, alpha, bias = exactly(phi, alpha, bias)
    n = x.shape[-2]
    wide = x.flatten(-2)
    inv_rms = ((wide**2).mean(-1) + norm_eps) ** -0.5
    scaled = wide if gamma is None else wide * gamma.flatten()
    h_mix = scaled @ phi.T
    m = h_mix * inv_rms[..., None]
    h_pre = torch.sigmoid(alpha[0] * m[..., :n] + bias[:n]) + hc_eps
    h_post = 2 * torch.sigmoid(alpha[1] * m[..., n : 2 * n] + bias[n : 2 * n])
    h_res = torch.zeros(1, dtype=torch.float64)
    if alpha.numel() == 3:
        h_res = (alpha[2] * m[..., 2 * n :] + bias[2 * n :]).unflatten(-1, (n, n))
    h_in = (h_pre[..., None] * x).sum(-2)
    return h_in, h_post, h_res, inv_rms, h_mix, h_pre


def pre_without_unused(*args, **kwargs):
    """With alpha of two numbers h_res is not computed."""
    out = list(pre(*args, **kwargs))
    out[2] = None
    return out


PRE = "npu_mhc_pre"
for label, lead in (("batch", (2, 3)), ("packed", (5,))):
    n, d = 4, 6
    tensors = (rand(*lead, n, d), rand(n * n + 2 * n, n * d) / 8, rand(3), rand(n * n + 2 * n))
    add(
        PRE, pre, *tensors, gamma=rand(n, d), out_flag=1, label=label, keep=(1, 2, 3),
        grad=(0, 1, 2, 3),
    )  # fmt: skip
    add(PRE, pre, *tensors, out_flag=1, label=f"{label}-no-gamma", keep=(1, 2, 3), grad=(0,))
add(
    PRE, pre_without_unused, rand(5, 4, 6), rand(8, 24) / 8, rand(2), rand(8), out_flag=1,
    label="two", keep=(1, 2, 3),
)  # fmt: skip


def pre_backward_case(label, lead, with_gamma, with_post):
    n, d = 4, 6
    x, phi, alpha, bias = (
        rand(*lead, n, d),
        rand(n * n + 2 * n, n * d) / 8,
        rand(3),
        rand(n * n + 2 * n),
    )
    gamma = rand(n, d) if with_gamma else None
    grads = (rand(*lead, d), rand(*lead, n), rand(*lead, n, n))
    extra = rand(*lead, n, d) if with_post else None

    def backward(x, phi, alpha, dh_in, dh_post, dh_res, *saved, gamma=None, grad_x_post=None):
        leaves = [t.detach().clone().requires_grad_() for t in (x, phi, alpha, bias)]
        if gamma is not None:
            leaves.append(gamma.clone().requires_grad_())
        out = pre(*leaves[:4], gamma=leaves[4] if gamma is not None else None)
        found = list(torch.autograd.grad(out[:3], leaves, (dh_in, dh_post, dh_res)))
        if grad_x_post is not None:
            found[0] = found[0] + grad_x_post
        return (*found, *([None] if gamma is None else []))

    _, h_post, _, inv_rms, h_mix, h_pre = pre(x, phi, alpha, bias, gamma=gamma)
    saved = [t.float() for t in (inv_rms, h_mix, h_pre, h_post)]
    rest = {} if gamma is None else {"gamma": gamma.float()}
    rest |= {} if extra is None else {"grad_x_post": extra}

    def reference(x, phi, alpha, *others, gamma=None, grad_x_post=None):
        wide = gamma.double() if gamma is not None else None
        return backward(x, phi, alpha, *others, gamma=wide, grad_x_post=grad_x_post)

    add(
        "npu_mhc_pre_backward", reference, x, phi, alpha, *grads, *saved, label=label,
        keep=(1, 2, 4, 5), dtypes=FLOATS if with_gamma else ONE, **rest,
    )  # fmt: skip


pre_backward_case("batch", (2, 3), True, False)
pre_backward_case("packed-post", (5,), True, True)
pre_backward_case("no-gamma", (5,), False, False)


def sinkhorn_steps(x, eps, num_iters):
    """[(value, denominators)] of the softmax, then of each normalisation."""
    shifted = torch.exp(x - x.amax(-1, keepdim=True))
    total = shifted.sum(-1)
    steps = [(shifted / total[..., None], total)]
    y = steps[0][0] + eps
    for k in range(1, 2 * num_iters):
        dim = -2 if k % 2 else -1
        total = y.sum(dim, keepdim=True) + eps
        y = y / total
        steps.append((y, total.squeeze(dim)))
    return steps


def sinkhorn(x, *, eps=1e-6, num_iters=20, out_flag=0):
    return sinkhorn_steps(x, eps, num_iters)[-1][0], None, None


SINKHORN = "npu_mhc_sinkhorn"
for label, lead, n, iters in (
    ("batch", (2, 3), 4, 20), ("six", (5,), 6, 3), ("one-step", (5,), 8, 1), ("empty", (0,), 4, 2)
):  # fmt: skip
    add(SINKHORN, sinkhorn, rand(*lead, n, n), num_iters=iters, label=label, grad=(0,), dtypes=ONE)
    steps = sinkhorn_steps(rand(*lead, n, n), 1e-6, iters)
    tokens = 1
    for size in lead:
        tokens *= size
    norm = torch.zeros(2 * iters, tokens, n, 8)
    sums = torch.zeros(2 * iters, tokens, 8)
    for k, (value, total) in enumerate(steps):
        norm[k, ..., :n] = value.reshape(tokens, n, n)
        sums[k, :, :n] = total.reshape(tokens, n)

    def sinkhorn_backward(grad, norm, sums, steps=steps):
        g = grad
        for k in range(len(steps) - 1, 0, -1):
            value, total = steps[k]
            dim = -2 if k % 2 else -1
            g = (g - (g * value).sum(dim, keepdim=True)) / total.unsqueeze(dim)
        first = steps[0][0]
        return (g - (g * first).sum(-1, keepdim=True)) * first

    add(
        f"{SINKHORN}_backward", sinkhorn_backward, rand(*lead, n, n), norm.flatten(),
        sums.flatten(), label=label, tolerance=1e-3, dtypes=ONE,
    )  # fmt: skip


# ---- routing


def routed(
    x, experts, *, scale=None, offset=None, active_num=1024, expert_capacity=0, expert_num=256,
    drop_pad_mode=0, expert_tokens_num_mode=0, expert_tokens_before_capacity_flag=False,
    quant_mode=1,
):  # fmt: skip
    bs, k = experts.shape
    flat = experts.flatten().tolist()
    order = sorted(range(bs * k), key=lambda pair: flat[pair])
    counts = [flat.count(e) for e in range(expert_num)]
    row_idx = torch.full((bs * k,), -1, dtype=experts.dtype)
    pairs = []  # the pair of each row of the result, None for a row of zeros
    if drop_pad_mode == 0:
        rows = min(bs * k, active_num) if active_num > 0 else bs * k
        pairs = order[:rows]
        for place, pair in enumerate(pairs):
            row_idx[pair] = place
    else:
        for e in range(expert_num):
            mine = [pair for pair in order if flat[pair] == e][:expert_capacity]
            for c, pair in enumerate(mine):
                row_idx[pair] = e * expert_capacity + c
            pairs += mine + [None] * (expert_capacity - len(mine))
    exact, scales = [], []
    for pair in pairs:
        if pair is None:
            exact.append(torch.zeros_like(x[0]))
            scales.append(0.0)
            continue
        row = x[pair // k]
        if quant_mode == 0:
            exact.append(row * scale + offset)
        else:
            if scale is not None:
                row = row * scale[flat[pair] if scale.shape[0] > 1 else 0]
            top = float(row.abs().max()) / 127
            scales.append(top)
            exact.append(row / top if top else row * 0)
    values = torch.stack(exact)
    dynamic = torch.tensor(scales, dtype=torch.float64) if quant_mode == 1 else None
    if drop_pad_mode == 1:
        values = values.reshape(expert_num, expert_capacity, -1)
    tokens = before = None
    if drop_pad_mode == 0 and expert_tokens_num_mode:
        running = torch.tensor(counts)
        tokens = (running.cumsum(0) if expert_tokens_num_mode == 1 else running).to(torch.int32)
    if drop_pad_mode == 1 and expert_tokens_before_capacity_flag:
        before = torch.tensor(counts, dtype=torch.int32)
    return int8(values), row_idx, tokens, before, dynamic


PAIRS = torch.tensor([[2, 0], [1, 2], [0, 2], [3, 1]], dtype=torch.int32)
R = "npu_moe_init_routing_quant"
add(R, routed, rand(4, 8), PAIRS, expert_num=5, expert_tokens_num_mode=1, label="dynamic")
add(
    R, routed, rand(4, 8), PAIRS, expert_num=5, expert_tokens_num_mode=2, active_num=5,
    scale=rand(5, 8).float(), label="cut",
)  # fmt: skip
add(
    R, routed, rand(4, 8), PAIRS, expert_num=5, scale=rand(1, 8).float(), active_num=0,
    label="one-scale",
)  # fmt: skip
add(
    R, routed, rand(4, 8), PAIRS, expert_num=5, scale=torch.tensor([20.0]), quant_mode=0,
    offset=torch.tensor([-3.0]), label="static", dtypes=ONE,
)  # fmt: skip
add(
    R, routed, rand(4, 8), PAIRS, expert_num=5, drop_pad_mode=1, expert_capacity=2,
    expert_tokens_before_capacity_flag=True, quant_mode=0, scale=torch.tensor([20.0]),
    offset=torch.tensor([0.0]), label="capacity", dtypes=ONE,
)  # fmt: skip


def unpermuted(rows, places, shape, *, probs=None, routing_map=None, drop_and_pad=False):
    out = unpermute_map(
        rows, places, shape, probs=probs, routing_map=routing_map, drop_and_pad=drop_and_pad
    )
    if not drop_and_pad:
        weights = None if probs is None else probs.masked_select(routing_map)
        return out, None, None, weights
    numbers = places.tolist()
    order = sorted(range(len(numbers)), key=lambda i: numbers[i])
    capacity = rows.shape[0] // routing_map.shape[1]
    weights = torch.stack([probs[numbers[i], i // capacity] for i in range(len(numbers))])
    in_order = torch.tensor([numbers[i] for i in order])
    return out, torch.tensor(order).int(), in_order.int(), weights


def unpermuted_grads(
    grad, out_index, token_id, routing_map, rows, probs, drop_and_pad, shape, places
):
    leaves = [rows.clone().requires_grad_()]
    leaves += [] if probs is None else [probs.clone().requires_grad_()]
    out = unpermute_map(
        leaves[0], places, shape, probs=leaves[1] if probs is not None else None,
        routing_map=routing_map, drop_and_pad=drop_and_pad,
    )  # fmt: skip
    return torch.autograd.grad(out, leaves, grad)


U = "_npu_moe_token_unpermute_with_routing_map"
G = "npu_moe_token_unpermute_with_routing_map_grad"
add(
    U, unpermuted, rand(8, 6), ORDER, [4, 6], probs=rand(4, 3), routing_map=MAP, label="probs",
    grad=(0,), fake=False,
)  # fmt: skip
add(
    U, unpermuted, rand(6, 6), PAD, [4, 6], probs=rand(4, 3), routing_map=MAP, drop_and_pad=True,
    label="pad", grad=(0,),
)  # fmt: skip
for label, count, places, padded in (("probs", 8, ORDER, False), ("pad", 6, PAD, True)):
    by_token = torch.sort(places, stable=True)
    add(
        G,
        lambda *args, places=places: unpermuted_grads(*args, places),
        rand(4, 6),
        by_token.indices.int() if padded else places,
        by_token.values if padded else places,
        MAP,
        rand(count, 6),
        rand(4, 3),
        padded,
        [4, 6],
        label=label,
        fake=padded,
    )

# Chunks that are a view of the tokens; decays of a chunk that float32 does not hold, backwards.
for label, lengths, tokens, speed in (("whole", (64, 64), 128, 1), ("forgets", (70, 6), 76, 60)):
    add(
        "npu_chunk_gated_delta_rule", chunked, rand(tokens, 2, 8) / 4, rand(tokens, 2, 8) / 4,
        rand(tokens, 4, 6), beta=rand(tokens, 4, low=0, high=1), initial_state=rand(2, 4, 6, 8),
        actual_seq_lengths=whole(*lengths), scale=0.25, g=gates(tokens, 4) * speed, label=label,
        dtypes=SHORT, tolerance=6e-2,
    )  # fmt: skip
