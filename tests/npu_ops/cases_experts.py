# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts."""

import torch
from table import add, int8, ints, rand

ONE = (torch.float32,)


def permute(tokens, indices, num_out_tokens=None):
    k = indices.shape[1] if indices.dim() == 2 else 1
    flat = indices.flatten().tolist()
    order = sorted(range(len(flat)), key=lambda p: flat[p])
    places = [order.index(p) for p in range(len(flat))]
    n = num_out_tokens or 0
    rows = min(n, len(flat)) if n > 0 else len(flat) + n
    return tokens[[p // k for p in order[:rows]]], torch.tensor(places, dtype=torch.int32)


CHOICES = torch.tensor([[2, 0], [1, 2], [0, 1], [2, 1]])
P = "npu_moe_token_permute"
add(P, permute, rand(4, 6), CHOICES, grad=(0,))
add(P, permute, rand(4, 6), CHOICES, 5, label="cut", grad=(0,))
add(P, permute, rand(4, 6), CHOICES, -2, label="less")
add(P, permute, rand(4, 6), torch.tensor([1, 0, 1, 0]), label="one-choice")


def unpermute(rows, places, probs=None):
    k = 1 if probs is None else probs.shape[1]
    out = []
    for r in range(places.numel() // k):
        total = rows[0] * 0
        for c in range(k):
            at = int(places[r * k + c])
            if at < rows.shape[0]:
                total = total + rows[at] * (1 if probs is None else probs[r, c])
        out.append(total)
    return torch.stack(out)


PLACES = permute(rand(4, 1), CHOICES)[1]
U = "npu_moe_token_unpermute"
add(U, unpermute, rand(8, 6), PLACES, rand(4, 2, low=0, high=1), grad=(0, 2))
add(U, unpermute, rand(5, 6), PLACES, rand(4, 2, low=0, high=1), label="dropped", grad=(0, 2))
add(U, unpermute, rand(8, 6), PLACES, label="no-probs", grad=(0,))

MAP = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)


def permute_map(tokens, routing, *, probs=None, num_out_tokens=None, drop_and_pad=False):
    pairs = []
    for e in range(routing.shape[1]):
        rows = [r for r in range(routing.shape[0]) if routing[r, e]]
        if drop_and_pad:
            rows = (rows + [r for r in range(routing.shape[0]) if not routing[r, e]])[
                : num_out_tokens // routing.shape[1]
            ]
        pairs += [(r, e) for r in rows]
    taken = [r for r, _ in pairs]
    order = taken if drop_and_pad else sorted(range(len(taken)), key=lambda i: taken[i])
    chosen = (
        torch.empty(0, dtype=torch.float64)
        if probs is None
        else torch.stack([probs[r, e] for r, e in pairs])
    )
    return tokens[taken], chosen, torch.tensor(order, dtype=torch.int32)


PM = "npu_moe_token_permute_with_routing_map"
add(PM, permute_map, rand(4, 6), MAP, probs=rand(4, 3), num_out_tokens=8, label="probs", grad=(0,))
add(PM, permute_map, rand(4, 6), MAP, num_out_tokens=8, label="plain")
add(
    PM,
    permute_map,
    rand(4, 6),
    MAP,
    probs=rand(4, 3),
    num_out_tokens=6,
    drop_and_pad=True,
    label="pad",
    grad=(0,),
)


def unpermute_map(rows, places, shape, *, probs=None, routing_map=None, drop_and_pad=False):
    out = torch.zeros(shape, dtype=torch.float64)
    if drop_and_pad:
        capacity = rows.shape[0] // routing_map.shape[1]
        for i in range(rows.shape[0]):
            r = int(places[i])
            out = out.index_add(0, torch.tensor([r]), (rows[i] * probs[r, i // capacity])[None])
        return out
    k = rows.shape[0] // shape[0]
    pairs = [
        (r, e) for r in range(shape[0]) for e in range(routing_map.shape[1]) if routing_map[r, e]
    ]
    for i, at in enumerate(places.tolist()):
        weight = 1 if probs is None else probs[pairs[i]]
        out = out.index_add(0, torch.tensor([i // k]), (rows[at] * weight)[None])
    return out


ORDER = permute_map(rand(4, 1), MAP)[2]
UM = "npu_moe_token_unpermute_with_routing_map"
add(
    UM,
    unpermute_map,
    rand(8, 6),
    ORDER,
    [4, 6],
    probs=rand(4, 3),
    routing_map=MAP,
    label="probs",
    grad=(0,),
)
PAD = permute_map(rand(4, 1), MAP, num_out_tokens=6, drop_and_pad=True)[2]
add(
    UM,
    unpermute_map,
    rand(6, 6),
    PAD,
    [4, 6],
    probs=rand(4, 3),
    routing_map=MAP,
    drop_and_pad=True,
    label="pad",
    grad=(0,),
)


def best(row, k):
    """Places of the k largest, lower index first."""
    return sorted(range(len(row)), key=lambda e: (-float(row[e]), e))[:k]


def gate(x, finished=None, k=1):
    p = torch.softmax(x, -1).reshape(-1, x.shape[-1])
    experts = [best(row, k) for row in p]
    y = torch.stack([row[e] for row, e in zip(p, experts)])
    R = len(experts)
    rows = torch.tensor([[c * R + r for c in range(k)] for r in range(R)], dtype=torch.int32)
    experts = torch.tensor(experts, dtype=torch.int32)
    if finished is not None:
        experts[finished.flatten()] = x.shape[-1]
    shape = (*x.shape[:-1], k)
    return y.reshape(shape), experts.reshape(shape), rows.reshape(shape)


ties = torch.zeros(2, 5, dtype=torch.float64)
GT = "npu_moe_gating_top_k_softmax"
add(GT, gate, rand(4, 6), torch.tensor([True, False, False, True]), 3, label="finished", dtypes=ONE)
add(GT, gate, ties, None, 2, label="ties", dtypes=ONE)
add(GT, gate, rand(2, 3, 6), None, 2, label="3d", dtypes=ONE)


def gate2(x, *, k=1, finished=None, renorm=0, output_softmax=False):
    p = torch.softmax(x, -1)
    experts = torch.tensor([best(row, k) for row in (x if renorm else p)], dtype=torch.int32)
    y = torch.softmax(x.gather(1, experts.long()), -1) if renorm else p.gather(1, experts.long())
    return y, experts, p if output_softmax and not renorm else torch.empty(0, dtype=torch.float64)


add(GT + "_v2", gate2, rand(4, 6), k=3, output_softmax=True, label="softmax", dtypes=ONE)
add(GT + "_v2", gate2, rand(4, 6), k=3, renorm=1, label="renorm", dtypes=ONE)


def gate_groups(
    x,
    k,
    *,
    bias=None,
    k_group=1,
    group_count=1,
    group_select_mode=0,
    norm_type=0,
    out_flag=False,
    routed_scaling_factor=1.0,
    eps=1e-20,
):
    norm = 1 / (1 + torch.exp(-x)) if norm_type else torch.softmax(x, -1)
    choice = norm + (0 if bias is None else bias)
    size = x.shape[1] // group_count
    experts = []
    for row in choice.detach():
        groups = [
            sorted(row[g * size : (g + 1) * size].tolist(), reverse=True)
            for g in range(group_count)
        ]
        worth = [g[0] if group_select_mode == 0 else g[0] + g[1] for g in groups]
        good = best(worth, k_group)
        experts.append(
            best([v if e // size in good else -float("inf") for e, v in enumerate(row.tolist())], k)
        )
    experts = torch.tensor(experts)
    y = norm.gather(1, experts)
    y = y / (y.sum(-1, keepdim=True) + eps) if norm_type else y
    return (
        y * routed_scaling_factor,
        experts.int(),
        norm.detach() if out_flag else torch.empty(0, dtype=torch.float64),
    )


GG = "npu_moe_gating_top_k"
add(
    GG,
    gate_groups,
    rand(4, 8),
    3,
    bias=rand(8),
    k_group=2,
    group_count=4,
    group_select_mode=1,
    norm_type=1,
    routed_scaling_factor=2.5,
    out_flag=True,
    label="deepseek",
    dtypes=ONE,
    grad=(0,),
)
add(
    GG, gate_groups, rand(4, 8), 2, k_group=1, group_count=2, label="softmax", dtypes=ONE, grad=(0,)
)


def init_routing(x, rows, experts, active):
    R, k = experts.shape
    flat, numbers = experts.flatten().tolist(), rows.flatten().tolist()
    order = sorted(range(R * k), key=lambda p: flat[p])
    sources = [numbers[p] for p in order]
    where = [0] * (R * k)
    for i, s in enumerate(sources):
        where[s] = i
    n = min(R, active) * k
    return (
        x[[s % R for s in sources[:n]]],
        torch.tensor(where, dtype=torch.int32),
        torch.tensor([flat[p] for p in order], dtype=torch.int32),
    )


ROWS = torch.arange(8, dtype=torch.int32).reshape(2, 4).t().contiguous()
for active in (4, 2):
    add(
        "npu_moe_init_routing",
        init_routing,
        rand(4, 6),
        ROWS,
        CHOICES.int(),
        active,
        label=str(active),
    )
add(
    "npu_moe_compute_expert_tokens",
    lambda e, n: torch.tensor([int((e <= i).sum()) for i in range(n)], dtype=torch.int32),
    torch.tensor([0, 0, 2, 2, 2, 3], dtype=torch.int32),
    5,
    dtypes=ONE,
)


def finalize(rows, s1, s2, bias, scales, index, experts, mode=0):
    R, k = scales.shape
    out = []
    for r in range(R):
        total = (0 if s1 is None else s1[r]) + (0 if s2 is None else s2[r])
        for c in range(k):
            at = int(index[c * R + r] if mode < 2 else index[r * k + c])
            row = rows[at] if at >= 0 else torch.zeros_like(rows[0])
            total = total + scales[r, c] * (row + (0 if bias is None else bias[experts[r, c]]))
        out.append(total)
    return torch.stack(out)


INDEX = torch.tensor([3, 1, 0, 2, 7, 5, 6, 4], dtype=torch.int32)
HOLES = torch.tensor([3, 1, -1, 2, 7, -1, 6, 4], dtype=torch.int32)
for mode, index in ((0, INDEX), (1, HOLES), (2, INDEX), (3, HOLES)):
    add(
        "npu_moe_finalize_routing",
        finalize,
        rand(8, 6),
        rand(4, 6),
        rand(4, 6),
        rand(3, 6),
        rand(4, 2),
        index,
        CHOICES.int(),
        mode,
        label=f"mode{mode}",
    )
add(
    "npu_moe_finalize_routing",
    finalize,
    rand(8, 6),
    None,
    None,
    None,
    rand(4, 2),
    INDEX,
    None,
    label="plain",
)


# ---- grouped product, SwiGLU, rows as int8: Ascend's document of GroupedMatmulSwigluQuant
def swiglu_quant(x, weight, ends, w_scale, x_scale):
    columns = weight.shape[2] // 2
    out, scales, first = (
        torch.zeros(x.shape[0], columns, dtype=torch.float64),
        [0.0] * x.shape[0],
        0,
    )
    for e, last in enumerate(ends.tolist()):
        for r in range(first, last):
            c = (x[r].double() @ weight[e].double()) * x_scale[r] * w_scale[e]
            s = c[:columns] / (1 + torch.exp(-c[:columns])) * c[columns:]
            scales[r] = float(s.abs().max()) / 127
            out[r] = s / scales[r] if scales[r] else s
        first = last
    return int8(out), torch.tensor(scales, dtype=torch.float64)


X8, W8 = ints(-9, 9, 7, 6, dtype=torch.int8), ints(-9, 9, 3, 6, 8, dtype=torch.int8)
X8[2] = 0  # a row without a scale
W_SCALE, X_SCALE = rand(3, 8, low=0.01, high=0.1), rand(7, low=0.1, high=0.5)
ENDS = torch.tensor([3, 3, 6])  # an empty group, and a row behind the last
add(
    "npu_grouped_matmul_swiglu_quant",
    lambda x, w, e, ws, xs: (*swiglu_quant(x, w, e, ws, xs), torch.empty(0, dtype=torch.float64)),
    X8, W8, ENDS, W_SCALE, X_SCALE, dtypes=ONE,
)  # fmt: skip
V2 = "npu_grouped_matmul_swiglu_quant_v2"
add(
    V2, lambda x, w, ws, xs, e: swiglu_quant(x, w[0], e, ws[0], xs),
    X8, [W8], [W_SCALE], X_SCALE, ENDS, dtypes=ONE,
)  # fmt: skip
add(
    V2, lambda x, w, ws, xs, e, group_list_type: swiglu_quant(x, w[0], e.cumsum(0), ws[0], xs),
    X8, [W8], [W_SCALE], X_SCALE, torch.tensor([1, 4, 2]), label="counts", dtypes=ONE, group_list_type=1,
)  # fmt: skip
