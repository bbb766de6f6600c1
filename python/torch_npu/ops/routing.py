# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts over many ranks: sorting with drops, quantisation and counts."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import require, unsupported, wide


def _check(name, x, expert_idx, drop_pad_mode, quant_mode, allowed) -> None:
    for what, t in (("x", x), ("expert_idx", expert_idx)):
        require(t.dim() == 2, f"{name}: {what} has {t.dim()} dimensions; allowed: 2.")
    require(
        x.size(0) == expert_idx.size(0),
        f"{name}: x has {x.size(0)} rows and expert_idx {expert_idx.size(0)}; they must be the same.",
    )
    require(
        drop_pad_mode in (0, 1),
        f"{name}: drop_pad_mode is {drop_pad_mode}; allowed: 0, 1.",
        "VALUE",
    )
    require(
        quant_mode in allowed,
        f"{name}: quant_mode is {quant_mode}; allowed: {', '.join(map(str, allowed))}.",
        "VALUE",
    )


class _Routes:
    """Pairs (token, choice) sorted by expert, those outside [first, last) behind the others."""

    def __init__(self, expert_idx, first: int, last: int):
        self.rows, self.choices = expert_idx.shape
        flat = expert_idx.flatten().to(torch.int64)
        self.inside = (flat >= first) & (flat < last)
        key = torch.where(self.inside, flat, torch.full_like(flat, max(last, 1) + 2**31))
        self.key, self.order = torch.sort(key, stable=True)
        self.experts = flat.index_select(0, self.order)
        self.first, self.last = first, last

    def counts(self):
        numbers = torch.arange(self.first, self.last, device=self.key.device)
        return (self.key[None, :] == numbers[:, None]).sum(1)

    def places(self):
        """Where each pair went."""
        at = torch.arange(self.order.numel(), device=self.order.device)
        return torch.empty_like(self.order).scatter(0, self.order, at)


def _token_counts(routes, kind: int, experts: int, name: str):
    counts = routes.counts()
    require(
        kind in (0, 1, 2), f"{name}: expert_tokens_num_type is {kind}; allowed: 0, 1, 2.", "VALUE"
    )
    if kind == 0:
        return counts.cumsum(0)
    if kind == 1:
        return counts
    # Pairs (expert, count): those with tokens first, the rest zero; as many as there are experts.
    numbers = torch.arange(routes.first, routes.last, device=counts.device)
    order = torch.sort((counts == 0).to(torch.int8), stable=True)[1]
    pairs = torch.stack((numbers, counts), 1).index_select(0, order)
    pairs = torch.where((pairs[:, 1:] > 0).expand_as(pairs), pairs, torch.zeros_like(pairs))
    return torch.cat((pairs, pairs.new_zeros(experts - pairs.size(0), 2)))


def _quantised(rows, experts, scale, offset, mode: int):
    """(rows, scale of each row)"""
    if mode == 0:
        y = wide(rows) * wide(scale) + wide(offset)
        return torch.clamp(torch.round(y), -128, 127).to(torch.int8), None
    y = wide(rows)
    if scale is not None:
        y = y * wide(scale).index_select(0, experts.clamp(0, scale.size(0) - 1))
    factor = y.abs().amax(-1, keepdim=True) / 127
    whole = torch.where(factor == 0, torch.ones_like(factor), factor)
    return torch.clamp(torch.round(y / whole), -128, 127).to(torch.int8), factor.squeeze(-1).float()


def _padded(routes, rows, capacity: int, experts: int):
    """Sorted rows as (E, capacity, ...), zeros where an expert has fewer; places of pairs, -1 if dropped."""
    starts = torch.cumsum(routes.counts(), 0) - routes.counts()
    at = torch.arange(routes.order.numel(), device=rows.device)
    expert = routes.key.clamp(max=experts - 1)
    rank = at - starts.index_select(0, expert)
    kept = (rank < capacity) & (routes.key < experts)
    slot = torch.where(kept, expert * capacity + rank, torch.full_like(at, experts * capacity))
    out = rows.new_zeros(experts * capacity + 1, *rows.shape[1:]).index_copy(0, slot, rows)[:-1]
    places = torch.full_like(slot, -1).scatter(
        0, routes.order, torch.where(kept, slot, torch.full_like(slot, -1))
    )
    return out.unflatten(0, (experts, capacity)), places


@implements("npu_moe_init_routing_v2")
def npu_moe_init_routing_v2(
    x, expert_idx, *, scale=None, offset=None, active_num=-1, expert_capacity=-1, expert_num=-1,
    drop_pad_mode=0, expert_tokens_num_type=0, expert_tokens_num_flag=False, quant_mode=-1,
    active_expert_range=(), row_idx_type=0, x_dtype=None,
):  # fmt: skip
    name = "npu_moe_init_routing_v2"
    _check(name, x, expert_idx, drop_pad_mode, quant_mode, (-1, 0, 1))
    require(
        row_idx_type in (0, 1), f"{name}: row_idx_type is {row_idx_type}; allowed: 0, 1.", "VALUE"
    )
    require(expert_num > 0, f"{name}: expert_num is {expert_num}; it must be positive.", "VALUE")
    require(
        quant_mode != 0 or (scale is not None and offset is not None),
        f"{name}: scale and offset must be given with quant_mode 0.",
    )
    first, last = tuple(active_expert_range) if len(active_expert_range) == 2 else (0, expert_num)
    require(
        0 <= first < last <= expert_num,
        f"{name}: active_expert_range is {[first, last]}; it must lie in [0, {expert_num}].",
        "VALUE",
    )
    routes = _Routes(expert_idx, first, last)
    if expert_tokens_num_flag:
        counts = _token_counts(routes, expert_tokens_num_type, expert_num, name)
    else:
        counts = x.new_empty(0, dtype=torch.int64)
    padded = drop_pad_mode == 1
    require(
        not padded or (expert_capacity > 0 and (first, last) == (0, expert_num)),
        f"{name}: drop_pad_mode 1 needs expert_capacity > 0 (is {expert_capacity}) and all experts.",
    )
    rows = routes.order.numel()
    rows = rows if padded or active_num <= 0 else min(active_num, rows)
    sources = routes.order[:rows] // routes.choices
    out = x.index_select(0, sources)
    if quant_mode == -1:
        row_scale = None if scale is None else scale.index_select(0, sources).float()
    else:
        out, row_scale = _quantised(out, routes.experts[:rows] - first, scale, offset, quant_mode)
    empty = x.new_empty(0, dtype=torch.float32)
    if padded:
        out, places = _padded(routes, out, expert_capacity, expert_num)
        if row_scale is not None:
            row_scale = _padded(routes, row_scale, expert_capacity, expert_num)[0].flatten()
        return out, places.to(torch.int32), counts, empty if row_scale is None else row_scale
    active = routes.inside.index_select(0, routes.order)
    if row_idx_type == 1:
        index = torch.where(active, routes.order, torch.full_like(routes.order, -1))
    else:
        index = torch.where(routes.inside, routes.places(), torch.full_like(routes.order, -1))
    return out, index.to(torch.int32), counts, empty if row_scale is None else row_scale


def _check_quant(name, x, expert_idx, scale, offset, sizes, modes) -> None:
    for what, t in (("x", x), ("expert_idx", expert_idx)):
        require(
            t.dim() == 2,
            f"{name}: Input tensor '{what}' must be 2-dimensional, but got dimension {t.dim()}.",
        )
    require(
        x.size(0) == expert_idx.size(0),
        f"{name}: The number of rows in input 'x' ({x.size(0)}) must match the number of rows in 'expert_idx' "
        f"({expert_idx.size(0)}).",
    )
    for what, value, allowed in modes:
        require(
            value in allowed,
            f"{name}: Parameter '{what}' must be {', '.join(map(str, allowed[:-1]))} or {allowed[-1]}, but got: "
            f"{value}.",
            "VALUE",
        )
    experts, capacity, padded = sizes
    require(experts > 0, f"{name}: expert_num is {experts}; it must be positive.", "VALUE")
    require(
        not padded or capacity > 0,
        f"{name}: expert_capacity is {capacity}; with drop_pad_mode 1 it must be positive.",
        "VALUE",
    )
    static = dict((what, value) for what, value, _ in modes)["quant_mode"] == 0
    require(
        not static or all(t is not None and t.numel() == 1 for t in (scale, offset)),
        f"{name}: scale and offset of one number each must be given with quant_mode 0.",
    )
    require(
        static or scale is None or scale.shape in ((1, x.size(1)), (experts, x.size(1))),
        f"{name}: scale has shape {None if scale is None else list(scale.shape)}; allowed: {[experts, x.size(1)]}, "
        f"{[1, x.size(1)]}.",
    )


@implements("npu_moe_init_routing_quant")
def npu_moe_init_routing_quant(
    x, expert_idx, *, scale=None, offset=None, active_num=1024, expert_capacity=0, expert_num=256,
    drop_pad_mode=0, expert_tokens_num_mode=0, expert_tokens_before_capacity_flag=False, quant_mode=1,
):  # fmt: skip
    """(rows of int8, place of each pair, tokens of experts, the same before dropping, scale of each row)"""
    name = "npu_moe_init_routing_quant"
    modes = (
        ("drop_pad_mode", drop_pad_mode, (0, 1)), ("quant_mode", quant_mode, (0, 1)),
        ("expert_tokens_num_mode", expert_tokens_num_mode, (0, 1, 2)),
    )  # fmt: skip
    sizes = (expert_num, expert_capacity, drop_pad_mode == 1)
    _check_quant(name, x, expert_idx, scale, offset, sizes, modes)
    routes, pairs = _Routes(expert_idx, 0, expert_num), expert_idx.numel()
    rows = pairs if drop_pad_mode == 1 or active_num <= 0 else min(active_num, pairs)
    tokens = x.index_select(0, routes.order[:rows] // routes.choices)
    out, row_scale = _quantised(tokens, routes.experts[:rows], scale, offset, quant_mode)
    counts = before = None
    if drop_pad_mode == 1:
        out, places = _padded(routes, out, expert_capacity, expert_num)
        if row_scale is not None:
            row_scale = _padded(routes, row_scale, expert_capacity, expert_num)[0].flatten()
        if expert_tokens_before_capacity_flag:
            before = routes.counts().to(torch.int32)
    else:
        places = routes.places()
        places = torch.where(routes.inside & (places < rows), places, -1)
        if expert_tokens_num_mode:
            counts = routes.counts()
            counts = (counts.cumsum(0) if expert_tokens_num_mode == 1 else counts).to(torch.int32)
    return out, places.to(expert_idx.dtype), counts, before, row_scale


@implements("npu_moe_re_routing")
def npu_moe_re_routing(
    tokens, expert_token_num_per_rank, *, per_token_scales=None, expert_token_num_type=1,
    idx_type=0, tokens_dtype=None,
):  # fmt: skip
    """Tokens stand rank by rank; they come out expert by expert."""
    name = "npu_moe_re_routing"
    require(
        expert_token_num_type == 1,
        f"{name}: expert_token_num_type is {expert_token_num_type}; allowed: 1 (counts).",
        "VALUE",
    )
    require(idx_type in (0, 1), f"{name}: idx_type is {idx_type}; allowed: 0, 1.", "VALUE")
    require(
        expert_token_num_per_rank.dim() == 2,
        f"{name}: expert_token_num_per_rank has {expert_token_num_per_rank.dim()} dimensions; allowed: 2.",
    )
    counts = expert_token_num_per_rank.to(torch.int64)
    ranks, experts = counts.shape
    ends = counts.flatten().cumsum(0)
    at = torch.arange(tokens.size(0), device=tokens.device)
    block = torch.searchsorted(ends, at, right=True).clamp(max=ranks * experts - 1)
    expert = torch.where(at < ends[-1], block % experts, torch.full_like(block, experts))
    order = torch.sort(expert, stable=True)[1]
    scales = (
        tokens.new_empty(0, dtype=torch.float32)
        if per_token_scales is None
        else per_token_scales.index_select(0, order)
    )
    index = order
    if idx_type == 1:
        index = torch.empty_like(order).scatter(0, order, at)
    return (
        tokens.index_select(0, order),
        scales,
        index.to(torch.int32),
        counts.sum(0).to(expert_token_num_per_rank.dtype),
    )


@implements("npu_moe_token_permute_with_routing_map_grad")
def npu_moe_token_permute_with_routing_map_grad(
    permuted_token_out_grad, probs_grad, sorted_indices, routing_map, experts_num, tokens_num,
    drop_and_pad,
):  # fmt: skip
    """(gradient of the tokens, of the weights)"""
    name = "npu_moe_token_permute_with_routing_map_grad"
    grad, at = wide(permuted_token_out_grad), sorted_indices.to(torch.int64)
    empty = permuted_token_out_grad.new_empty(0)
    if drop_and_pad:
        out = grad.new_zeros(tokens_num, grad.size(1)).index_add(0, at, grad)
        if probs_grad is None:
            return out.to(permuted_token_out_grad.dtype), empty
        rows = at.view(experts_num, -1)
        of_probs = wide(probs_grad).new_zeros(experts_num, tokens_num)
        of_probs = of_probs.scatter_add(1, rows, wide(probs_grad).view(experts_num, -1)).t()
        return out.to(permuted_token_out_grad.dtype), of_probs.to(probs_grad.dtype)
    require(
        at.numel() % tokens_num == 0,
        f"{name}: sorted_indices has {at.numel()} elements, which must be a multiple of tokens_num {tokens_num}.",
    )
    out = grad.index_select(0, at).view(tokens_num, -1, grad.size(1)).sum(1)
    if probs_grad is None:
        return out.to(permuted_token_out_grad.dtype), empty
    flat = routing_map.bool().t().reshape(-1)
    order = torch.sort(flat.to(torch.int8), descending=True, stable=True)[1][: at.numel()]
    of_probs = wide(probs_grad).new_zeros(experts_num * tokens_num)
    of_probs = of_probs.index_copy(0, order, wide(probs_grad)).view(experts_num, tokens_num).t()
    return out.to(permuted_token_out_grad.dtype), of_probs.to(probs_grad.dtype)


@implements("npu_moe_update_expert")
def npu_moe_update_expert(
    expert_ids, eplb_table, *, expert_scales=None, pruning_threshold=None, active_mask=None,
    local_rank_id=-1, world_size=-1, balance_mode=0,
):  # fmt: skip
    """Row e of eplb_table: how many replicas expert e has, then their numbers."""
    name = "npu_moe_update_expert"
    for what, value in (
        ("expert_scales", expert_scales),
        ("pruning_threshold", pruning_threshold),
        ("active_mask", active_mask),
    ):
        if value is not None:
            unsupported(f"{name}: argument {what} is not supported here: leave it out.")
    require(
        balance_mode in (0, 1), f"{name}: balance_mode is {balance_mode}; allowed: 0, 1.", "VALUE"
    )
    if balance_mode == 0:
        require(
            0 <= local_rank_id < world_size,
            f"{name}: local_rank_id is {local_rank_id}; it must lie in [0, world_size {world_size}).",
        )
    ids = expert_ids.to(torch.int64)
    table = eplb_table.to(torch.int64)
    count = table[:, 0].index_select(0, ids.flatten()).view_as(ids)
    if balance_mode == 0:  # by rank: the ranks are cut into as many runs as there are replicas
        run = (world_size + count - 1) // count
        turn = local_rank_id // run
    else:  # by token
        turn = torch.arange(ids.size(0), device=ids.device)[:, None] % count
    chosen = table.index_select(0, ids.flatten()).gather(
        1, (turn.expand_as(ids) + 1).reshape(-1, 1)
    )
    mask = torch.ones_like(ids, dtype=torch.bool)
    return chosen.view_as(ids).to(expert_ids.dtype), mask
