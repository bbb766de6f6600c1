# SPDX-License-Identifier: Apache-2.0
"""Tokens sent to the ranks of their experts."""

import functools
import operator

import torch

from torch_npu.ops import _lowp as lowp
from torch_npu.ops import implements
from torch_npu.ops._check import require, wide
from torch_npu.ops._exchange import (
    as_bytes,
    gather_rows,
    group_of,
    per_rank,
    send_rows,
    to_experts,
)
from torch_npu.ops._expert_layout import Layout, Messages, layout_of, numbered

_INFO = 128  # int32 numbers a row of assist_info
TILE = 128  # columns that share a scale with quant_mode 3


# ---- quantised rows ---------------------------------------------------------------------


def stored_dtype(name, x, quant_mode: int, options):
    """The dtype of sent rows: a kind of _lowp, int8, or x's own."""
    require(
        quant_mode in (0, 1, 2, 3, 4),
        f"{name}: quant_mode is {quant_mode}; allowed: 0, 1, 2, 3, 4.",
        "VALUE",
    )
    number = options.get("y_dtype")
    if quant_mode == 0:
        return x.dtype
    if quant_mode in (1, 2) and number in (None, 1):
        return torch.int8
    return lowp.E4M3 if number is None else lowp.kind_of(number, name, "y_dtype", lowp.FP8)


def scale_columns(x, quant_mode: int, scales) -> tuple | None:
    """The shape of a row's scales; None where rows have none."""
    hidden = x.size(1)
    if quant_mode == 0:
        return None if scales is None else tuple(scales.shape[1:])
    return {1: None, 2: (), 3: (-(-hidden // TILE),), 4: (2 * -(-hidden // 64),)}[quant_mode]


def check_scales(layout: Layout, x, quant_mode: int, scales) -> None:
    name, (tokens, hidden) = layout.name, x.shape
    if quant_mode == 0:
        require(
            scales is None or (scales.dim() > 0 and scales.size(0) == tokens),
            f"{name}: scales has shape {None if scales is None else list(scales.shape)}; with quant_mode 0 it holds the "
            f"scales of x's {tokens} rows.",
        )
        return
    require(
        quant_mode != 1 or (scales is not None and scales.numel() in (1, hidden)),
        f"{name}: scales must be given with quant_mode 1, with 1 or {hidden} numbers; it has "
        f"{None if scales is None else list(scales.shape)}.",
    )
    rows = layout.shared + layout.experts
    require(
        quant_mode == 1 or scales is None or list(scales.shape) == [rows, hidden],
        f"{name}: scales has shape {None if scales is None else list(scales.shape)}; with quant_mode {quant_mode} "
        f"allowed: {[rows, hidden]}, a row for each expert, the shared ones first.",
    )


def quantised(layout, x, ids, messages, quant_mode: int, scales, kind):
    """(rows as they are sent, scales that travel with them or None)"""
    token = messages.token
    if quant_mode == 0:
        return as_bytes(x)[token].view(x.dtype), None if scales is None else scales[token]
    rows = wide(x)[token]
    if quant_mode == 1:
        rows = rows * wide(scales).flatten()
    elif scales is not None:
        choices = ids.size(1)
        pair = ids.flatten()[token * choices + messages.choice.clamp(max=choices - 1)]
        shared = messages.choice >= choices
        row = torch.where(shared, messages.choice - choices, pair.to(torch.int64) + layout.shared)
        rows = rows * wide(scales)[row]
    if quant_mode == 4:
        y, scale = lowp.mx_quantise(rows, 1, kind)
        return y, scale.flatten(1)
    if quant_mode == 3:
        top = lowp.block_max(rows, 1, TILE) / lowp.LARGEST[kind]
        spread = lowp.spread(torch.where(top == 0, 1.0, top), 1, TILE, rows.size(1))
        return lowp.encode(rows / spread, kind), top.float()
    top = None
    if quant_mode == 2:
        limit = 127.0 if kind == torch.int8 else lowp.LARGEST[kind]
        top = rows.abs().amax(1) / limit if rows.numel() else rows.new_zeros(rows.size(0))
        rows = rows / torch.where(top == 0, 1.0, top).unsqueeze(1)
        top = top.float()
    if kind == torch.int8:
        return torch.round(rows).clamp(-128, 127).to(torch.int8), top
    return lowp.encode(rows, kind), top


# ---- dispatch ---------------------------------------------------------------------------


def _into(buffer_rows: int, rows):
    """Rows at the head of a buffer of zeros."""
    out = as_bytes(rows.new_empty(buffer_rows, *rows.shape[1:])).zero_()
    out[: rows.size(0)] = as_bytes(rows)
    return out.view(rows.dtype)


def earlier_pairs(ids, taking):
    """How many earlier pairs that take part chose the same expert."""
    flat = ids.flatten().to(torch.int64)
    ordered, order = torch.sort(flat, stable=True)
    before = taking.flatten()[order].to(torch.int64).cumsum(0) - taking.flatten()[order].to(
        torch.int64
    )
    first = torch.searchsorted(ordered, ordered)
    return torch.zeros_like(flat).scatter(0, order, before - before[first]).to(torch.int32)


def check_x(name, x, expert_ids) -> None:
    require(
        x.dim() == 2 and expert_ids.dim() == 2,
        f"{name}: The x and expert_ids should be 2D, but got {x.dim()}D and {expert_ids.dim()}D.",
    )
    require(
        x.size(0) == expert_ids.size(0),
        f"{name}: x has {x.size(0)} rows and expert_ids {expert_ids.size(0)}; they must be the same.",
    )


def check_nums(name, kind: int) -> None:
    require(
        kind in (0, 1),
        f"{name}: The expert_token_nums_type should be 0 or 1. It is {kind}.",
    )


class _Arrived:
    """The rows for this rank's experts, ordered by expert, source rank, token."""

    def __init__(self, layout: Layout, group, counts: list[int], size: int, device):
        self.layout, self.group, self.sent = layout, group, counts
        mine = torch.tensor([size, *counts], dtype=torch.int64, device=device)
        # Every rank learns all counts: where one buffer is too small, all ranks refuse and none waits.
        every = gather_rows(mine, group).view(layout.ranks, -1).tolist()
        local = layout.local
        for rank, (room, *_) in enumerate(every):
            places = slice(1 + rank * local, 1 + (rank + 1) * local)
            total = sum(sum(row[places]) for row in every)
            require(
                total <= room,
                f"{layout.name}: {total} rows go to rank {rank}, and its buffer has {room}: give the same global_bs on all "
                "ranks, the largest number of tokens times the ranks.",
                "VALUE",
            )
        places = slice(1 + layout.rank * local, 1 + (layout.rank + 1) * local)
        self.counts: list[int] = [n for row in every for n in row[places]]

    def rows(self, x):
        local = self.layout.local
        received = send_rows(
            x, per_rank(self.sent, local), per_rank(self.counts, local), self.group
        )
        return to_experts(received, self.counts, local)

    def by_expert(self) -> list[list[int]]:
        """The rows of each local expert from each source rank."""
        local = self.layout.local
        return [self.counts[i::local] for i in range(self.layout.here)]


def _dispatch(name, version: int, x, expert_ids, group_ep, ranks, rank, experts, options):
    check_x(name, x, expert_ids)
    layout = layout_of(name, expert_ids, ranks, rank, experts, options)
    check_nums(name, options.get("expert_token_nums_type", 1))
    mode, scales = options.get("quant_mode", 0), options.get("scales")
    kind = stored_dtype(name, x, mode, options)
    check_scales(layout, x, mode, scales)
    group = group_of(name, group_ep, ranks, "group_ep")
    messages = Messages(layout, expert_ids, options.get("x_active_mask"), numbered(layout, options))
    rows, row_scales = quantised(layout, x, expert_ids, messages, mode, scales, kind)
    weights = _row_weights(messages, options.get("expert_scales"), expert_ids)
    expand_x, dynamic, info, *rest = delivered(
        layout, group, messages, rows, row_scales, weights, expert_ids, version, options
    )
    if version == 1:
        info = earlier_pairs(expert_ids, messages.taking)
    return expand_x, dynamic, info, *rest


def delivered(
    layout, group, messages, rows, row_scales, weights, expert_ids, version: int, options
):
    """The results of dispatch, once rows stand in the order of `messages`; assist_info is the third."""
    tokens, choices = expert_ids.shape
    size = layout.rows(tokens, choices, options.get("global_bs", 0), version)
    arrived = _Arrived(layout, group, messages.counts, size, rows.device)
    source = torch.full_like(messages.token, layout.rank + 1)
    info = torch.stack((source, messages.token, messages.choice, messages.target % layout.local), 1)
    rows, info = arrived.rows(rows), arrived.rows(info.to(torch.int32))
    row_scales, weights = (None if t is None else arrived.rows(t) for t in (row_scales, weights))
    found = _results(layout, arrived, size, rows, row_scales, weights, options)
    return (*found[:2], _assist_info(info, size, expert_ids), *found[2:])


def _row_weights(messages, expert_scales, expert_ids):
    if expert_scales is None:
        return None
    choices = expert_ids.size(1)
    pair = messages.token * choices + messages.choice.clamp(max=choices - 1)
    return torch.where(messages.choice < choices, expert_scales.float().flatten()[pair], 1.0)


def _assist_info(info, size: int, expert_ids):
    """(source rank + 1, token, choice, expert here) at the head of a row's 128 numbers; zeros for no row."""
    out = info.new_zeros(max(size * _INFO, expert_ids.numel()))
    out[: size * _INFO].view(size, _INFO)[: info.size(0), :4] = info
    return out


def _results(layout, arrived, size, rows, row_scales, weights, options):
    """(expand_x, dynamic_scales, expert_token_nums, ep_recv_counts, tp_recv_counts, expand_scales)"""
    device, counts = rows.device, arrived.by_expert()
    nums = torch.tensor([sum(c) for c in counts], dtype=torch.int64, device=device)
    nums = nums if options.get("expert_token_nums_type", 1) == 1 else nums.cumsum(0)
    running = torch.tensor(
        functools.reduce(operator.iadd, counts, []), dtype=torch.int64, device=device
    ).cumsum(0)
    empty = torch.zeros(0, dtype=torch.float32, device=device)
    tp = options.get("tp_world_size", 0)
    return (
        _into(size, rows),
        empty if row_scales is None else _into(size, row_scales),
        nums,
        running.to(torch.int32),
        running[-1:].to(torch.int32).expand(tp).clone()
        if tp
        else running.new_zeros(0, dtype=torch.int32),
        torch.zeros(size, dtype=torch.float32, device=device)
        if weights is None
        else _into(size, weights),
    )


def _dispatch_meta(name, version: int, x, expert_ids, ranks, rank, experts, options):
    check_x(name, x, expert_ids)
    layout = layout_of(name, expert_ids, ranks, rank, experts, options)
    mode = options.get("quant_mode", 0)
    kind = stored_dtype(name, x, mode, options)
    tokens, choices = expert_ids.shape
    size = layout.rows(tokens, choices, options.get("global_bs", 0), version)
    columns = scale_columns(x, mode, options.get("scales"))
    scale_dtype = {
        0: torch.float32 if options.get("scales") is None else options["scales"].dtype,
        4: torch.uint8,
    }
    shape = (0,) if columns is None else (size, *columns)
    index = max(size * _INFO, expert_ids.numel()) if version == 2 else expert_ids.numel()
    return (
        x.new_empty(size, x.size(1), dtype=kind),
        x.new_empty(shape, dtype=scale_dtype.get(mode, torch.float32)),
        x.new_empty(index, dtype=torch.int32),
        x.new_empty(layout.here, dtype=torch.int64),
        x.new_empty(layout.here * ranks, dtype=torch.int32),
        x.new_empty(options.get("tp_world_size", 0), dtype=torch.int32),
        x.new_empty(size, dtype=torch.float32),
    )


def _meta_v1(x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options):
    name = "npu_moe_distribute_dispatch"
    return _dispatch_meta(
        name, 1, x, expert_ids, ep_world_size, ep_rank_id, moe_expert_num, options
    )


@implements("npu_moe_distribute_dispatch", meta=_meta_v1)
def npu_moe_distribute_dispatch(
    x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options
):
    name = "npu_moe_distribute_dispatch"
    return _dispatch(
        name, 1, x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, options
    )


def _meta_v2(x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options):
    name = "npu_moe_distribute_dispatch_v2"
    return _dispatch_meta(
        name, 2, x, expert_ids, ep_world_size, ep_rank_id, moe_expert_num, options
    )


@implements("npu_moe_distribute_dispatch_v2", meta=_meta_v2)
def npu_moe_distribute_dispatch_v2(
    x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options
):
    name = "npu_moe_distribute_dispatch_v2"
    return _dispatch(
        name, 2, x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, options
    )
