# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts: gradients, and routing over ranks."""

import torch
from cases_experts import CHOICES, MAP, PLACES, permute_map, unpermute
from table import add, int8, rand

ONE = (torch.float32,)


# ---- gradients
def permute_grad(grad, places, tokens, dtype, k, padded=False):
    out = torch.zeros(tokens, grad.shape[1], dtype=torch.float64)
    for pair, place in enumerate(places.tolist()):
        if place < grad.shape[0]:
            out[pair // k] += grad[place]
    return out


add(
    "npu_moe_token_permute_grad",
    lambda t, g, i, p: permute_grad(g, p, 4, None, 2),
    rand(4, 6),
    rand(8, 6),
    CHOICES,
    PLACES,
)
for count in (8, 5):
    add(
        "npu_moe_token_permute_grad_v2",
        permute_grad,
        rand(count, 6),
        PLACES,
        4,
        torch.float32,
        2,
        label=str(count),
        dtypes=ONE,
    )


def unpermute_grads(rows, grad, places, probs=None):
    leaves = [rows.clone().requires_grad_()] + (
        [] if probs is None else [probs.clone().requires_grad_()]
    )
    grads = torch.autograd.grad(unpermute(leaves[0], places, *leaves[1:]), leaves, grad)
    return grads[0], grads[1] if probs is not None else grad.new_empty(0)


for count in (8, 5):
    add(
        "npu_moe_token_unpermute_grad",
        unpermute_grads,
        rand(count, 6),
        rand(4, 6),
        PLACES,
        rand(4, 2, low=0, high=1),
        label=str(count),
    )
add(
    "npu_moe_token_unpermute_grad",
    unpermute_grads,
    rand(8, 6),
    rand(8, 6),
    PLACES,
    label="no-probs",
)
_rows, _probs = rand(8, 6), rand(4, 2, low=0, high=1)
add(
    "npu_moe_token_unpermute_grad_v2",
    lambda g, p, n, d, probs, padded, shape, rows: unpermute_grads(rows, g, p, probs),
    rand(4, 6), PLACES, 8, torch.float32, _probs, False, None, _rows, dtypes=ONE,
)  # fmt: skip
add("_npu_moe_token_unpermute", lambda r, p, w: (unpermute(r, p, w), r), _rows, PLACES, _probs)


def gate_grads(norm, grad, chosen, *, norm_type=0, routed_scaling_factor=1.0):
    # Logits that give these scores.
    x = (torch.log(norm) if norm_type == 0 else torch.log(norm / (1 - norm))).requires_grad_()
    y = (torch.softmax(x, -1) if norm_type == 0 else torch.sigmoid(x)).gather(-1, chosen.long())
    y = y / y.sum(-1, keepdim=True) if norm_type == 1 else y
    return torch.autograd.grad(y * routed_scaling_factor, x, grad)[0]


_chosen = torch.tensor([[1, 3], [0, 2], [4, 1]], dtype=torch.int32)
for kind, scores in ((0, torch.softmax(rand(3, 5), -1)), (1, torch.sigmoid(rand(3, 5)))):
    add(
        "npu_moe_gating_top_k_backward",
        gate_grads,
        scores,
        rand(3, 2),
        _chosen,
        label=str(kind),
        norm_type=kind,
        routed_scaling_factor=1.5,
        dtypes=ONE,
    )


def map_grads(grad, probs_grad, places, routing, experts, tokens, pad):
    pairs = []
    for e in range(experts):
        if pad:
            pairs += [(r, e) for r in places.view(experts, -1)[e].tolist()]
        else:
            pairs += [(r, e) for r in range(tokens) if routing[r, e]]
    out, probs = torch.zeros(tokens, grad.shape[1]).double(), torch.zeros(tokens, experts).double()
    for i, (r, e) in enumerate(pairs):
        out[r] += grad[i]
        probs[r, e] += probs_grad[i]
    return out, probs


_places = permute_map(rand(4, 1), MAP)[-1]
add(
    "npu_moe_token_permute_with_routing_map_grad",
    map_grads,
    rand(8, 6),
    rand(8),
    _places,
    MAP,
    3,
    4,
    False,
)
_padded = permute_map(rand(4, 1), MAP, num_out_tokens=6, drop_and_pad=True)[-1]
add(
    "npu_moe_token_permute_with_routing_map_grad",
    map_grads,
    rand(6, 6),
    rand(6),
    _padded,
    MAP,
    3,
    4,
    True,
    label="pad",
)


# ---- ranks
def init_routing(x, chosen, *, scale=None, offset=None, active_num=-1, expert_capacity=-1, expert_num=-1, drop_pad_mode=0,
                 expert_tokens_num_type=0, expert_tokens_num_flag=False, quant_mode=-1, active_expert_range=(), row_idx_type=0):  # fmt: skip
    first, last = active_expert_range or (0, expert_num)
    flat = chosen.flatten().tolist()
    k = chosen.shape[1]
    order = sorted(range(len(flat)), key=lambda p: flat[p] if first <= flat[p] < last else 10**6)
    counts = [sum(e == n for e in flat) for n in range(first, last)]
    tokens = torch.tensor(counts)
    tokens = tokens.cumsum(0) if expert_tokens_num_type == 0 else tokens
    if expert_tokens_num_type == 2:
        pairs = [[first + n, c] for n, c in enumerate(counts) if c]
        tokens = torch.tensor(pairs + [[0, 0]] * (expert_num - len(pairs)))
    tokens = tokens if expert_tokens_num_flag else torch.empty(0, dtype=torch.int64)
    empty = torch.empty(0, dtype=torch.float64)
    if drop_pad_mode:
        out, seen = torch.zeros(expert_num, expert_capacity, x.shape[1]).double(), [0] * expert_num
        index, scales = [-1] * len(flat), torch.zeros(expert_num * expert_capacity).double()
        for p in order:
            e = flat[p]
            if seen[e] < expert_capacity:
                row, at = x[p // k], e * expert_capacity + seen[e]
                if quant_mode == 0:
                    row = int8(row * scale + offset)
                elif quant_mode == 1:
                    row = row if scale is None else row * scale[e % scale.shape[0]]
                    scales[at] = row.abs().max() / 127
                    row = int8(row / scales[at])
                elif scale is not None:
                    scales[at] = scale[p // k]
                out[e, seen[e]], index[p] = row, at
            seen[e] += 1
        carried = scales if quant_mode == 1 or (quant_mode == -1 and scale is not None) else empty
        out = out.to(torch.int8) if quant_mode >= 0 else out
        return out, torch.tensor(index, dtype=torch.int32), tokens, carried
    rows = order if active_num <= 0 else order[:active_num]
    out = x[[p // k for p in rows]]
    inside = [first <= e < last for e in flat]
    index = (
        [p if inside[p] else -1 for p in order]
        if row_idx_type
        else [order.index(p) if inside[p] else -1 for p in range(len(flat))]
    )
    carried = empty if scale is None or quant_mode >= 0 else scale[[p // k for p in rows]]
    if quant_mode == 0:
        out = int8(out * scale + offset)
    if quant_mode == 1:
        if scale is not None:
            # One for each expert of the range; rows behind it have the one their number is cut to.
            numbers = [min(max(flat[p] - first, 0), scale.shape[0] - 1) for p in rows]
            out = out * scale[numbers]
        carried = out.abs().amax(1) / 127
        out = int8(out / carried[:, None])
    return out, torch.tensor(index, dtype=torch.int32), tokens, carried


I = "npu_moe_init_routing_v2"  # noqa: E741
base = {"expert_num": 3, "expert_tokens_num_flag": True}
add(I, init_routing, rand(4, 6), CHOICES, **base)
add(
    I,
    init_routing,
    rand(4, 6),
    CHOICES,
    label="counts",
    expert_tokens_num_type=1,
    row_idx_type=1,
    scale=rand(4),
    active_num=5,
    **base,
)
add(
    I,
    init_routing,
    rand(4, 6),
    CHOICES,
    label="range",
    expert_tokens_num_type=2,
    active_expert_range=[1, 3],
    **base,
)
add(I, init_routing, rand(4, 6), CHOICES, label="pad", drop_pad_mode=1, expert_capacity=2, **base)
add(
    I,
    init_routing,
    rand(4, 6),
    CHOICES,
    label="quant",
    quant_mode=1,
    dtypes=ONE,
    tolerance=1e-5,
    **base,
)


_dynamic = {"quant_mode": 1, "dtypes": ONE, "tolerance": 1e-5}
_pad = {"drop_pad_mode": 1, "expert_capacity": 2}
add(I, init_routing, rand(4, 6), CHOICES, label="static", quant_mode=0, scale=rand(1) * 9, offset=rand(1), dtypes=ONE, **base)  # fmt: skip
add(I, init_routing, rand(4, 6), CHOICES, label="smooth", scale=rand(3, 6), **_dynamic, **base)
add(I, init_routing, rand(4, 6), CHOICES, label="smooth-one", scale=rand(1, 6), **_dynamic, **base)
add(I, init_routing, rand(4, 6), CHOICES, label="smooth-range", scale=rand(2, 6), active_expert_range=[1, 3], row_idx_type=1, **_dynamic, **base)  # fmt: skip
add(I, init_routing, rand(4, 6), CHOICES, label="pad-scale", scale=rand(4), **_pad, **base)
add(I, init_routing, rand(4, 6), CHOICES, label="pad-quant", **_pad, **_dynamic, **base)
add(
    I,
    init_routing,
    rand(4, 6),
    CHOICES,
    label="pad-smooth",
    scale=rand(3, 6),
    **_pad,
    **_dynamic,
    **base,
)
add(I, init_routing, rand(4, 6), CHOICES, label="pad-static", quant_mode=0, scale=rand(1) * 9, offset=rand(1), dtypes=ONE, **_pad, **base)  # fmt: skip


def re_routing(tokens, counts, *, per_token_scales=None, idx_type=0):
    source, rows = 0, []
    for rank in counts.tolist():
        for e, n in enumerate(rank):
            rows += [(e, source + i) for i in range(n)]
            source += n
    order = [r for _, r in sorted(rows, key=lambda p: p[0])]
    index = order if idx_type == 0 else [order.index(i) for i in range(len(order))]
    scales = torch.empty(0).double() if per_token_scales is None else per_token_scales[order]
    return tokens[order], scales, torch.tensor(index, dtype=torch.int32), counts.sum(0)


_counts = torch.tensor([[2, 0, 1], [1, 2, 0]])
add("npu_moe_re_routing", re_routing, rand(6, 4), _counts, per_token_scales=rand(6), dtypes=ONE)
add("npu_moe_re_routing", re_routing, rand(6, 4), _counts, idx_type=1, label="inverse")


def replicas(ids, table, *, local_rank_id=-1, world_size=-1, balance_mode=0):
    out = ids.clone()
    for t in range(ids.shape[0]):
        for c in range(ids.shape[1]):
            n, *numbers = table[ids[t, c]].tolist()
            out[t, c] = numbers[t % n if balance_mode else local_rank_id // -(-world_size // n)]
    return out, torch.ones_like(ids, dtype=torch.bool)


_table = torch.tensor([[1, 0, -1], [2, 1, 3], [2, 2, 4]], dtype=torch.int32)
add(
    "npu_moe_update_expert",
    replicas,
    CHOICES.int(),
    _table,
    local_rank_id=3,
    world_size=4,
    dtypes=ONE,
)
add(
    "npu_moe_update_expert",
    replicas,
    CHOICES.int(),
    _table,
    balance_mode=1,
    label="by-token",
    dtypes=ONE,
)
