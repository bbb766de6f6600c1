# SPDX-License-Identifier: Apache-2.0
"""Results of experts sent back to the ranks of their tokens, weighted and summed."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import floating, refuse_given, require, shapes, wide
from torch_npu.ops._exchange import check_counts, group_of, per_rank, send_rows, to_ranks
from torch_npu.ops._expert_layout import Layout, Messages, layout_of, numbered


def check_combine(name, expand_x, expert_ids, expert_scales, layout: Layout, options) -> None:
    floating(name, expand_x=expand_x, expert_scales=expert_scales)
    require(
        expand_x.dim() == 2,
        f"{name}: expand_x has {expand_x.dim()} dimensions; allowed: 2, (rows, H).",
    )
    refuse_given(
        name, **{k: options.get(k) for k in ("activation_scale", "weight_scale", "group_list")}
    )
    tokens, hidden = expert_ids.size(0), expand_x.size(1)
    consts = options.get("const_expert_num", 0)
    ids, rows = expert_ids.shape, (tokens, hidden)
    shapes(
        name, expert_scales=(expert_scales, ids), shared_expert_x=(options.get("shared_expert_x"), rows),
        ori_x=(options.get("ori_x"), rows), const_expert_v=(options.get("const_expert_v"), (consts, hidden)),
    )  # fmt: skip
    need = ["ori_x"] if options.get("copy_expert_num", 0) or consts else []
    need += ["const_expert_alpha_1", "const_expert_alpha_2", "const_expert_v"] if consts else []
    for what in need:
        require(
            options.get(what) is not None,
            f"{name}: {what} must be given with copy or const experts.",
        )


def _counts_from_totals(layout: Layout, totals, rows: int) -> list[int]:
    """Rank-major counts of the rows here, from the running totals that dispatch gave."""
    places = layout.here * layout.ranks
    require(
        totals.numel() >= places,
        f"{layout.name}: ep_send_counts has {totals.numel()} elements; dispatch's ep_recv_counts have {places}.",
    )
    ends = totals.flatten()[:places].tolist()
    counts = [end - start for start, end in zip([0, *ends], ends)]
    require(
        all(n >= 0 for n in counts) and (not ends or ends[-1] <= rows),
        f"{layout.name}: ep_send_counts is {ends}; allowed: totals that do not fall and end at most at {rows}, the rows "
        "of expand_x.",
        "VALUE",
    )
    return rank_major(layout, counts)


def rank_major(layout: Layout, counts: list[int]) -> list[int]:
    """Counts by (expert, rank) turned, with the places that a shared rank leaves unused."""
    ranks, local = layout.ranks, layout.local
    out = [0] * (ranks * local)
    for i in range(layout.here):
        for r in range(ranks):
            out[r * local + i] = counts[i * ranks + r]
    return out


def _returned(layout: Layout, group, rows, counts: list[int], messages: Messages):
    """The rows of this rank's messages, in their order."""
    check_counts(layout.name, counts, messages.counts, group, rows.device)
    ordered = to_ranks(rows[: sum(counts)], counts, layout.local)
    return send_rows(ordered, per_rank(counts, layout.local), messages.per_rank, group)


def _summed(layout, returned, messages, expert_ids, expert_scales, options):
    """(bs, H) in float32."""
    tokens, choices = expert_ids.shape
    weights = wide(expert_scales).flatten()
    pair = messages.token * choices + messages.choice.clamp(max=max(choices - 1, 0))
    weight = torch.where(messages.choice < choices, weights[pair], 1.0)
    rows = wide(returned)
    out = rows.new_zeros(tokens, rows.size(1)).index_add(
        0, messages.token, rows * weight.unsqueeze(1)
    )
    active = messages.taking
    kinds = expert_ids.to(torch.int64) - layout.experts - options.get("zero_expert_num", 0)
    copies = options.get("copy_expert_num", 0)
    part = wide(expert_scales) * active
    if options.get("ori_x") is not None:
        of_x = (part * ((kinds >= 0) & (kinds < copies))).sum(1)
        plain = wide(options["ori_x"])
        for c in range(options.get("const_expert_num", 0)):
            chosen = (part * (kinds == copies + c)).sum(1).unsqueeze(1)
            first, second, v = (
                wide(options[f"const_expert_{k}"])[c] for k in ("alpha_1", "alpha_2", "v")
            )
            out = out + chosen * (first * plain + second * v)
        out = out + of_x.unsqueeze(1) * plain
    if options.get("shared_expert_x") is not None:
        out = out + wide(options["shared_expert_x"]) * active.any(1, keepdim=True)
    return out


def _combine(
    name, expand_x, expert_ids, totals, expert_scales, group_ep, ranks, rank, experts, options
):
    layout = layout_of(name, expert_ids, ranks, rank, experts, options)
    check_combine(name, expand_x, expert_ids, expert_scales, layout, options)
    counts = _counts_from_totals(layout, totals, expand_x.size(0))
    return finish(layout, expand_x, expert_ids, counts, expert_scales, group_ep, options)


def finish(layout, expand_x, expert_ids, counts, expert_scales, group_ep, options):
    group = group_of(layout.name, group_ep, layout.ranks, "group_ep")
    messages = Messages(layout, expert_ids, options.get("x_active_mask"), numbered(layout, options))
    returned = _returned(layout, group, expand_x, counts, messages)
    return _summed(layout, returned, messages, expert_ids, expert_scales, options)


def _combine_meta(name, expand_x, expert_ids, expert_scales, ranks, rank, experts, options):
    layout = layout_of(name, expert_ids, ranks, rank, experts, options)
    check_combine(name, expand_x, expert_ids, expert_scales, layout, options)
    return expand_x.new_empty(expert_ids.size(0), expand_x.size(1))


def _meta(expand_x, expert_ids, expand_idx, ep_send_counts, expert_scales, group_ep, ep_world_size, ep_rank_id,
          moe_expert_num, **options):  # fmt: skip
    name = "npu_moe_distribute_combine"
    return _combine_meta(
        name,
        expand_x,
        expert_ids,
        expert_scales,
        ep_world_size,
        ep_rank_id,
        moe_expert_num,
        options,
    )


@implements("npu_moe_distribute_combine", meta=_meta)
def npu_moe_distribute_combine(expand_x, expert_ids, expand_idx, ep_send_counts, expert_scales, group_ep, ep_world_size,
                               ep_rank_id, moe_expert_num, **options):  # fmt: skip
    """The order of rows follows from expert_ids: `expand_idx` is not read."""
    return _combine(
        "npu_moe_distribute_combine", expand_x, expert_ids, ep_send_counts, expert_scales, group_ep, ep_world_size,
        ep_rank_id, moe_expert_num, options,
    ).to(expand_x.dtype)  # fmt: skip


def _meta_v2(expand_x, expert_ids, assist_info_for_combine, ep_send_counts, expert_scales, group_ep, ep_world_size,
             ep_rank_id, moe_expert_num, **options):  # fmt: skip
    name = "npu_moe_distribute_combine_v2"
    return _combine_meta(
        name,
        expand_x,
        expert_ids,
        expert_scales,
        ep_world_size,
        ep_rank_id,
        moe_expert_num,
        options,
    )


@implements("npu_moe_distribute_combine_v2", meta=_meta_v2)
def npu_moe_distribute_combine_v2(expand_x, expert_ids, assist_info_for_combine, ep_send_counts, expert_scales, group_ep,
                                  ep_world_size, ep_rank_id, moe_expert_num, **options):  # fmt: skip
    """`assist_info_for_combine` is not read, as expand_idx above."""
    return _combine(
        "npu_moe_distribute_combine_v2", expand_x, expert_ids, ep_send_counts, expert_scales, group_ep, ep_world_size,
        ep_rank_id, moe_expert_num, options,
    ).to(expand_x.dtype)  # fmt: skip


def _check_norm(name, expand_x, expert_ids, residual_x, gamma) -> None:
    tokens, hidden = expert_ids.size(0), expand_x.size(1)
    shapes(name, residual_x=(residual_x, (tokens, 1, hidden)), gamma=(gamma, (hidden,)))
    floating(name, residual_x=residual_x, gamma=gamma)


def _norm_meta(expand_x, expert_ids, expand_idx, ep_send_counts, expert_scales, residual_x, gamma, group_ep, ep_world_size,
               ep_rank_id, moe_expert_num, **options):  # fmt: skip
    name = "npu_moe_distribute_combine_add_rms_norm"
    _check_norm(name, expand_x, expert_ids, residual_x, gamma)
    _combine_meta(
        name,
        expand_x,
        expert_ids,
        expert_scales,
        ep_world_size,
        ep_rank_id,
        moe_expert_num,
        options,
    )
    x = residual_x.new_empty(residual_x.shape, dtype=expand_x.dtype)
    return (
        x,
        residual_x.new_empty(residual_x.size(0), 1, 1, dtype=torch.float32),
        torch.empty_like(x),
    )


@implements("npu_moe_distribute_combine_add_rms_norm", meta=_norm_meta)
def npu_moe_distribute_combine_add_rms_norm(
    expand_x, expert_ids, expand_idx, ep_send_counts, expert_scales, residual_x, gamma, group_ep, ep_world_size,
    ep_rank_id, moe_expert_num, *, norm_eps=1e-6, **options,
):  # fmt: skip
    """(normalised, rstd, sum); shared_expert_x has weight 1."""
    name = "npu_moe_distribute_combine_add_rms_norm"
    _check_norm(name, expand_x, expert_ids, residual_x, gamma)
    found = _combine(
        name, expand_x, expert_ids, ep_send_counts, expert_scales, group_ep, ep_world_size, ep_rank_id, moe_expert_num,
        options,
    )  # fmt: skip
    x = found.unsqueeze(1) + wide(residual_x)
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + norm_eps)
    return (x * rstd * wide(gamma)).to(expand_x.dtype), rstd.float(), x.to(expand_x.dtype)
