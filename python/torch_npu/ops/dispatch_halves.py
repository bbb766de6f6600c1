# SPDX-License-Identifier: Apache-2.0
"""Dispatch and combination in two halves: the first prepares the rows that the second sends.

Rows travel in the second half. What it must know of the first is in y and comm_cmd_info, whose contents
are private to each pair of operators.
"""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import require, unsupported
from torch_npu.ops._exchange import as_bytes, group_of
from torch_npu.ops._expert_layout import Messages, layout_of, numbered
from torch_npu.ops.combine import check_combine, finish, rank_major
from torch_npu.ops.dispatch import (
    TILE,
    check_nums,
    check_scales,
    check_x,
    delivered,
    earlier_pairs,
    quantised,
    scale_columns,
    stored_dtype,
)

_WORDS = 16  # int32 numbers that comm_cmd_info has for a row


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def _scale_start(hidden: int, quant_mode: int) -> int:
    """The byte of a row where its scales begin."""
    return _up(hidden, {1: 32, 2: 32, 3: 128, 4: 256}[quant_mode])


def _columns(hidden: int, quant_mode: int) -> int:
    """Elements of a row of y: a row and its scales, padded to 512 bytes."""
    if quant_mode == 0:
        return _up(2 * hidden, 512) // 2
    scales = {1: 0, 2: 4, 3: 4 * -(-hidden // TILE), 4: _up(-(-hidden // 32), 2)}[quant_mode]
    return _up(_scale_start(hidden, quant_mode) + scales, 512)


def _places(messages, tokens: int, choices: int):
    """The row of y that holds each message: pairs first, then the shared experts'."""
    shared = choices * tokens + (messages.choice - choices) * tokens + messages.token
    return torch.where(
        messages.choice < choices, messages.token * choices + messages.choice, shared
    )


def _setup_parts(x, expert_ids, ranks, rank, experts, options):
    name = "npu_moe_distribute_dispatch_setup"
    require(
        x.dim() == 2,
        f"{name}: The dims of input x should be 2 dimensional, but got {x.dim()}-dimensional.",
        "VALUE",
    )
    check_x(name, x, expert_ids)
    layout = layout_of(name, expert_ids, ranks, rank, experts, options)
    mode, scales = options.get("quant_mode", 0), options.get("scales")
    kind = stored_dtype(name, x, mode, options)
    if mode == 0 and scales is not None:
        unsupported(
            f"{name}: scales with quant_mode 0 are not supported here: use npu_moe_distribute_dispatch_v2."
        )
    check_scales(layout, x, mode, scales)
    rows = expert_ids.numel() + expert_ids.size(0) * options.get("shared_expert_num", 1)
    return layout, mode, kind, rows


def _setup_meta(x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options):
    _, mode, kind, rows = _setup_parts(
        x, expert_ids, ep_world_size, ep_rank_id, moe_expert_num, options
    )
    return (
        x.new_empty(rows, _columns(x.size(1), mode), dtype=kind),
        x.new_empty(expert_ids.numel(), dtype=torch.int32),
        x.new_empty((rows + ep_world_size) * _WORDS, dtype=torch.int32),
    )


@implements("npu_moe_distribute_dispatch_setup", meta=_setup_meta)
def npu_moe_distribute_dispatch_setup(
    x, expert_ids, group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options
):
    """(y, expand_idx, comm_cmd_info)"""
    layout, mode, kind, count = _setup_parts(
        x, expert_ids, ep_world_size, ep_rank_id, moe_expert_num, options
    )
    group_of(layout.name, group_ep, ep_world_size, "group_ep")
    tokens, choices = expert_ids.shape
    messages = Messages(layout, expert_ids, options.get("x_active_mask"), numbered(layout, options))
    rows, scales = quantised(layout, x, expert_ids, messages, mode, options.get("scales"), kind)
    y = torch.zeros(count, _columns(x.size(1), mode), dtype=kind, device=x.device)
    places, whole = _places(messages, tokens, choices), as_bytes(y)
    whole[places, : x.size(1)] = as_bytes(rows)
    if scales is not None and scales.numel():
        part = scales.view(*scales.shape, *[1] * (2 - scales.dim())).contiguous().view(torch.uint8)
        start = _scale_start(x.size(1), mode)
        whole[places, start : start + part.size(1)] = part
    info = torch.zeros(count + ep_world_size, _WORDS, dtype=torch.int32, device=x.device)
    info[: tokens * choices, 0] = messages.taking.flatten().to(torch.int32)
    return y, earlier_pairs(expert_ids, messages.taking), info.flatten()


def _teardown_parts(x, y, expert_ids, info, ranks, rank, experts, options):
    name = "npu_moe_distribute_dispatch_teardown"
    check_x(name, x, expert_ids)
    layout = layout_of(name, expert_ids, ranks, rank, experts, options)
    check_nums(name, options.get("expert_token_nums_type", 1))
    mode = options.get("quant_mode", 0)
    rows = expert_ids.numel() + expert_ids.size(0) * options.get("shared_expert_num", 1)
    wanted = [rows, _columns(x.size(1), mode)]
    require(
        list(y.shape) == wanted and info.numel() == (rows + ranks) * _WORDS,
        f"{name}: y has shape {list(y.shape)} and comm_cmd_info {info.numel()} elements; npu_moe_distribute_dispatch_setup "
        f"with the same arguments gives {wanted} and {(rows + ranks) * _WORDS}.",
    )
    return layout, mode


def _teardown_meta(
    x, y, expert_ids, comm_cmd_info, group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options
):
    layout, mode = _teardown_parts(
        x, y, expert_ids, comm_cmd_info, ep_world_size, ep_rank_id, moe_expert_num, options
    )
    size = layout.rows(*expert_ids.shape, options.get("global_bs", 0), 2)
    columns = scale_columns(x, mode, None)
    shape = (0,) if columns is None else (size, *columns)
    return (
        x.new_empty(size, x.size(1), dtype=y.dtype),
        x.new_empty(shape, dtype=torch.uint8 if mode == 4 else torch.float32),
        x.new_empty(max(size * 128, expert_ids.numel()), dtype=torch.int32),
        x.new_empty(layout.here, dtype=torch.int64),
    )


@implements("npu_moe_distribute_dispatch_teardown", meta=_teardown_meta)
def npu_moe_distribute_dispatch_teardown(
    x, y, expert_ids, comm_cmd_info, group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options
):
    """(expand_x, dynamic_scales, assist_info, expert_token_nums)"""
    layout, mode = _teardown_parts(
        x, y, expert_ids, comm_cmd_info, ep_world_size, ep_rank_id, moe_expert_num, options
    )
    group = group_of(layout.name, group_ep, ep_world_size, "group_ep")
    tokens, choices = expert_ids.shape
    taking = comm_cmd_info.view(-1, _WORDS)[: tokens * choices, 0].view(tokens, choices).bool()
    messages = Messages(layout, expert_ids, taking, numbered(layout, options))
    whole = as_bytes(y)[_places(messages, tokens, choices)]
    rows = whole[:, : x.size(1)].contiguous().view(y.dtype)
    scales, columns = None, scale_columns(x, mode, None)
    if columns is not None:
        dtype, start = torch.uint8 if mode == 4 else torch.float32, _scale_start(x.size(1), mode)
        size = torch.Size(columns).numel() * dtype.itemsize
        scales = whole[:, start : start + size].contiguous().view(torch.uint8).view(dtype)
        scales = scales.view(rows.size(0), *columns)
    found = delivered(layout, group, messages, rows, scales, None, expert_ids, 2, options)
    return found[:4]


def _combine_columns(hidden: int) -> int:
    return _up(_up(hidden, 32) + _up(hidden, 8) // 2, 512)


def _combine_setup_parts(expand_x, expert_ids, assist, ranks, rank, experts, options):
    name = "npu_moe_distribute_combine_setup"
    layout = layout_of(name, expert_ids, ranks, rank, experts, options)
    require(
        expand_x.dim() == 2 and assist.numel() >= expand_x.size(0) * 128,
        f"{name}: expand_x has shape {list(expand_x.shape)} and assist_info_for_combine {assist.numel()} elements; the first "
        "is a matrix, the second has 128 for each of its rows.",
    )
    return layout


def _combine_setup_meta(expand_x, expert_ids, assist_info_for_combine, group_ep, ep_world_size, ep_rank_id, moe_expert_num,
                        **options):  # fmt: skip
    _combine_setup_parts(
        expand_x,
        expert_ids,
        assist_info_for_combine,
        ep_world_size,
        ep_rank_id,
        moe_expert_num,
        options,
    )
    rows = expand_x.size(0)
    return (
        expand_x.new_empty(rows, _combine_columns(expand_x.size(1)), dtype=torch.int8),
        expand_x.new_empty((rows + ep_world_size) * _WORDS, dtype=torch.int32),
    )


@implements("npu_moe_distribute_combine_setup", meta=_combine_setup_meta)
def npu_moe_distribute_combine_setup(expand_x, expert_ids, assist_info_for_combine, group_ep, ep_world_size, ep_rank_id,
                                     moe_expert_num, **options):  # fmt: skip
    """(quant_expand_x, comm_cmd_info): teardown takes the rows from expand_x, the first result is not used."""
    layout = _combine_setup_parts(
        expand_x,
        expert_ids,
        assist_info_for_combine,
        ep_world_size,
        ep_rank_id,
        moe_expert_num,
        options,
    )
    group_of(layout.name, group_ep, ep_world_size, "group_ep")
    rows = expand_x.size(0)
    info = expand_x.new_zeros(rows + ep_world_size, _WORDS, dtype=torch.int32)
    info[:rows, :4] = assist_info_for_combine[: rows * 128].view(rows, 128)[:, :4]
    shape = (rows, _combine_columns(expand_x.size(1)))
    return expand_x.new_zeros(shape, dtype=torch.int8), info.flatten()


def _combine_teardown_meta(expand_x, quant_expand_x, expert_ids, expand_idx, expert_scales, comm_cmd_info, group_ep,
                           ep_world_size, ep_rank_id, moe_expert_num, **options):  # fmt: skip
    name = "npu_moe_distribute_combine_teardown"
    layout = layout_of(name, expert_ids, ep_world_size, ep_rank_id, moe_expert_num, options)
    check_combine(name, expand_x, expert_ids, expert_scales, layout, options)
    return expand_x.new_empty(expert_ids.size(0), expand_x.size(1))


@implements("npu_moe_distribute_combine_teardown", meta=_combine_teardown_meta)
def npu_moe_distribute_combine_teardown(expand_x, quant_expand_x, expert_ids, expand_idx, expert_scales, comm_cmd_info,
                                        group_ep, ep_world_size, ep_rank_id, moe_expert_num, **options):  # fmt: skip
    name = "npu_moe_distribute_combine_teardown"
    layout = layout_of(name, expert_ids, ep_world_size, ep_rank_id, moe_expert_num, options)
    check_combine(name, expand_x, expert_ids, expert_scales, layout, options)
    rows = expand_x.size(0)
    require(
        comm_cmd_info.numel() == (rows + ep_world_size) * _WORDS,
        f"{name}: comm_cmd_info has {comm_cmd_info.numel()} elements; npu_moe_distribute_combine_setup gives "
        f"{(rows + ep_world_size) * _WORDS} for expand_x of shape {list(expand_x.shape)}.",
    )
    info = comm_cmd_info.view(-1, _WORDS)[:rows].to(torch.int64)
    used = info[info[:, 0] > 0]
    place = used[:, 3] * ep_world_size + used[:, 0] - 1
    counts = torch.bincount(place, minlength=layout.here * ep_world_size).tolist()
    require(
        len(counts) == layout.here * ep_world_size,
        f"{name}: comm_cmd_info names experts that this rank does not have; pass npu_moe_distribute_combine_setup's.",
        "VALUE",
    )
    found = finish(
        layout, expand_x, expert_ids, rank_major(layout, counts), expert_scales, group_ep, options
    )
    return found.to(expand_x.dtype)
