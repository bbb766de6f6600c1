# SPDX-License-Identifier: Apache-2.0
"""Mixture of experts: choosing experts, sorting tokens by expert and back."""

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, unsupported, wide


def _rank(name, what, x, allowed) -> None:
    require(
        x.dim() in allowed,
        f"{name}: The dims of input {what} should be {' or '.join(map(str, allowed))} dimensional, "
        f"but got {x.dim()}-dimensional.",
    )


def _whole_numbers(name, what, x) -> None:
    require(
        x.dtype in (torch.int32, torch.int64),
        f"{name}: {what} is {x.dtype}; allowed: int32, int64.",
        "TYPE",
    )


@implements("npu_moe_token_permute")
def npu_moe_token_permute(tokens, indices, num_out_tokens=None, padded_mode=False):
    name = "npu_moe_token_permute"
    _rank(name, "tokens", tokens, (2,))
    _rank(name, "indices", indices, (2, 1))
    if padded_mode:
        unsupported(f"{name}: padded_mode True is not supported here; allowed: False.")
    choices = indices.size(1) if indices.dim() == 2 else 1
    _whole_numbers(name, "indices", indices)
    require(
        indices.size(0) == tokens.size(0),
        f"{name}: indices has {indices.size(0)} rows and tokens {tokens.size(0)}; they must be the same.",
    )
    order = torch.sort(indices.flatten(), stable=True)[1]
    places = _inverse(order)
    pairs = order.size(0)
    asked = num_out_tokens or 0
    rows = min(asked, pairs) if asked > 0 else pairs + asked
    return tokens.index_select(0, order[:rows] // choices), places.to(torch.int32)


def _inverse(order):
    return torch.empty_like(order).scatter(
        0, order, torch.arange(order.size(0), device=order.device)
    )


@implements("npu_moe_token_unpermute")
def npu_moe_token_unpermute(
    permuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None
):
    name = "npu_moe_token_unpermute"
    _rank(name, "permuted_tokens", permuted_tokens, (2,))
    _rank(name, "sorted_indices", sorted_indices, (1,))
    if padded_mode:
        unsupported(f"{name}: padded_mode True is not supported here; allowed: False.")
    choices = 1
    if probs is not None:
        _rank(name, "probs", probs, (2,))
        choices = probs.size(1)
        require(
            probs.numel() == sorted_indices.numel(),
            f"{name}: probs has shape {list(probs.shape)} and sorted_indices {sorted_indices.numel()} "
            "elements; they must have as many.",
        )
    _whole_numbers(name, "sorted_indices", sorted_indices)
    places = sorted_indices.to(torch.int64)
    rows = permuted_tokens.size(0)
    # Pairs that permutation dropped count as zero.
    padded = torch.cat(
        (wide(permuted_tokens), wide(permuted_tokens).new_zeros(1, permuted_tokens.size(1)))
    )
    gathered = padded.index_select(0, places.clamp(max=rows)).unflatten(0, (-1, choices))
    if probs is not None:
        gathered = gathered * wide(probs).unsqueeze(-1)
    return gathered.sum(1).to(permuted_tokens.dtype)


def _rows_at(rows, places):
    """rows[places] in wide dtype, zeros where a place is behind the last row."""
    padded = torch.cat((wide(rows), wide(rows).new_zeros(1, rows.size(1))))
    return padded.index_select(0, places.to(torch.int64).clamp(max=rows.size(0)))


def _no_padding(name, padded_mode) -> None:
    if padded_mode:
        unsupported(f"{name}: padded_mode True is not supported here; allowed: False.")


@implements("npu_moe_token_permute_grad")
def npu_moe_token_permute_grad(
    tokens, grad_permuted_tokens, indices, sorted_indices, padded_mode=False
):
    _no_padding("npu_moe_token_permute_grad", padded_mode)
    choices = indices.size(1) if indices.dim() == 2 else 1
    rows = _rows_at(grad_permuted_tokens, sorted_indices)
    return rows.unflatten(0, (-1, choices)).sum(1).to(tokens.dtype)


@implements("npu_moe_token_permute_grad_v2")
def npu_moe_token_permute_grad_v2(
    grad_permuted_tokens, sorted_indices, tokens_size_0, tokens_dtype, num_topK, padded_mode=False
):
    name = "npu_moe_token_permute_grad_v2"
    _no_padding(name, padded_mode)
    require(
        num_topK > 0 and sorted_indices.numel() == tokens_size_0 * num_topK,
        f"{name}: sorted_indices has {sorted_indices.numel()} elements; {tokens_size_0} tokens of "
        f"num_topK {num_topK} need {tokens_size_0 * num_topK}.",
    )
    rows = _rows_at(grad_permuted_tokens, sorted_indices)
    return rows.view(tokens_size_0, num_topK, rows.size(1)).sum(1).to(tokens_dtype)


def _unpermute_grads(name, grad, places, rows, dtype, permuted, probs, padded_mode):
    """(gradient of the rows, of the weights; that is empty without them)"""
    _no_padding(name, padded_mode)
    _rank(name, "grad_unpermuted_tokens", grad, (2,))
    _rank(name, "sorted_indices", places, (1,))
    choices = 1 if probs is None else probs.size(1)
    spread = wide(grad).repeat_interleave(choices, 0)
    weighted = spread if probs is None else spread * wide(probs).reshape(-1, 1)
    at = places.to(torch.int64)
    out = weighted.new_zeros(rows + 1, grad.size(1))
    out = out.index_copy(0, at.clamp(max=rows), weighted)[:rows]
    of_probs = grad.new_empty(0)
    if probs is not None:
        require(permuted is not None, f"{name}: permuted_tokens must be given with probs.")
        of_probs = (spread * _rows_at(permuted, places)).sum(1).view_as(probs).to(probs.dtype)
    return out.to(dtype), of_probs


@implements("npu_moe_token_unpermute_grad")
def npu_moe_token_unpermute_grad(
    permuted_tokens, grad_unpermuted_tokens, sorted_indices, probs=None, padded_mode=False,
    restore_shape=None,
):  # fmt: skip
    return _unpermute_grads(
        "npu_moe_token_unpermute_grad", grad_unpermuted_tokens, sorted_indices,
        permuted_tokens.size(0), permuted_tokens.dtype, permuted_tokens, probs, padded_mode,
    )  # fmt: skip


@implements("npu_moe_token_unpermute_grad_v2")
def npu_moe_token_unpermute_grad_v2(
    grad_unpermuted_tokens, sorted_indices, permuted_tokens_size_0, permuted_tokens_dtype,
    probs=None, padded_mode=False, restore_shape=None, permuted_tokens=None,
):  # fmt: skip
    return _unpermute_grads(
        "npu_moe_token_unpermute_grad_v2", grad_unpermuted_tokens, sorted_indices,
        permuted_tokens_size_0, permuted_tokens_dtype, permuted_tokens, probs, padded_mode,
    )  # fmt: skip


@implements("_npu_moe_token_unpermute")
def _npu_moe_token_unpermute(
    permuted_tokens, sorted_indices, probs=None, padded_mode=False, restore_shape=None
):
    """Also the rows, which backward reads."""
    out = npu_moe_token_unpermute(
        permuted_tokens, sorted_indices, probs, padded_mode, restore_shape
    )
    return out, permuted_tokens.clone()


def _pairs(by_row, count):
    """Numbers of the true elements in order. `count` says how many, so that sizes can be traced."""
    flat = by_row.flatten()
    if count is None:
        return torch.nonzero(flat).squeeze(1)
    return torch.sort(flat.to(torch.int8), descending=True, stable=True)[1][:count]


@implements("npu_moe_token_permute_with_routing_map")
def npu_moe_token_permute_with_routing_map(
    tokens, routing_map, *, probs=None, num_out_tokens=None, drop_and_pad=False
):
    name = "npu_moe_token_permute_with_routing_map"
    _rank(name, "tokens", tokens, (2,))
    _rank(name, "routing_map", routing_map, (2,))
    if not drop_and_pad:
        order = _pairs(routing_map.bool().t(), num_out_tokens or None)
        pairs = order % tokens.size(0)
        chosen = None if probs is None else probs.t().flatten().index_select(0, order)
        places = torch.sort(pairs, stable=True)[1].to(torch.int32)
    else:
        experts = routing_map.size(1)
        require(
            num_out_tokens is not None and num_out_tokens % experts == 0,
            f"{name}: num_out_tokens is {num_out_tokens}; with drop_and_pad it must be a multiple of {experts} experts.",
        )
        order = torch.sort(routing_map.to(torch.int32).t(), dim=1, descending=True, stable=True)[1]
        order = order[:, : num_out_tokens // experts]
        pairs = order.flatten()
        chosen = None if probs is None else probs.t().gather(1, order).flatten()
        places = pairs.to(torch.int32)
    return tokens.index_select(0, pairs), tokens.new_empty(0) if chosen is None else chosen, places


@implements("_npu_moe_token_unpermute_with_routing_map")
def _npu_moe_token_unpermute_with_routing_map(
    permuted_tokens, sorted_indices, restore_shape, *, probs=None, routing_map=None, drop_and_pad=False
):  # fmt: skip
    """(tokens, and what backward reads: order and tokens of the rows with drop_and_pad, weights of the rows)"""
    name = "npu_moe_token_unpermute_with_routing_map"
    _rank(name, "permuted_tokens", permuted_tokens, (2,))
    require(
        probs is None or routing_map is not None,
        f"{name}: routing_map must be given with probs.",
    )
    places = sorted_indices.to(torch.int64)
    weights = None
    if drop_and_pad:
        rows = wide(permuted_tokens)
        if probs is not None:
            weights = probs.t().gather(1, places.view(routing_map.size(1), -1)).flatten()
            rows = rows * wide(weights).unsqueeze(-1)
        out = rows.new_zeros(restore_shape).index_add(0, places, rows)
        token, order = torch.sort(places, stable=True)
        saved = order.to(torch.int32), token.to(torch.int32)
    else:
        rows = _rows_at(permuted_tokens, _behind(places, permuted_tokens.size(0)))
        if probs is not None:
            chosen = _pairs(routing_map.bool(), places.size(0))
            weights = probs.flatten().index_select(0, chosen)
            rows = rows * wide(weights).unsqueeze(-1)
        out = rows.view(restore_shape[0], -1, restore_shape[1]).sum(1)
        saved = None, None
    return out.to(permuted_tokens.dtype), *saved, None if weights is None else weights.detach()


def _behind(places, rows: int):
    """Places with -1, which stands for a dropped pair, moved behind the last row."""
    return torch.where(places < 0, rows, places)


@implements("npu_moe_token_unpermute_with_routing_map")
def npu_moe_token_unpermute_with_routing_map(
    permuted_tokens, sorted_indices, restore_shape, *, probs=None, routing_map=None, drop_and_pad=False
):  # fmt: skip
    return _npu_moe_token_unpermute_with_routing_map(
        permuted_tokens, sorted_indices, restore_shape, probs=probs, routing_map=routing_map,
        drop_and_pad=drop_and_pad,
    )[0]  # fmt: skip


@implements("npu_moe_token_unpermute_with_routing_map_grad")
def npu_moe_token_unpermute_with_routing_map_grad(
    unpermuted_tokens_grad, out_index, permuted_token_id, routing_map, permuted_tokens, probs,
    drop_and_pad, restore_shape,
):  # fmt: skip
    """Without drop_and_pad both lists are the sorted_indices of the forward operator."""
    name = "npu_moe_token_unpermute_with_routing_map_grad"
    _rank(name, "unpermuted_tokens_grad", unpermuted_tokens_grad, (2,))
    require(
        probs is None or (routing_map is not None and permuted_tokens is not None),
        f"{name}: routing_map and permuted_tokens must be given with probs.",
    )
    places, count = out_index.to(torch.int64), out_index.size(0)
    rows = count if permuted_tokens is None else permuted_tokens.size(0)
    grad, pairs = wide(unpermuted_tokens_grad), None
    if drop_and_pad:
        token = permuted_token_id.to(torch.int64)
        if probs is not None:
            pairs = token * probs.size(1) + places // max(count // max(probs.size(1), 1), 1)
    else:
        token = torch.arange(count, device=grad.device) // max(count // max(restore_shape[0], 1), 1)
        places = _behind(places, rows)
        if probs is not None:
            pairs = _pairs(routing_map.bool(), count)
    of_rows, of_probs = grad.index_select(0, token), grad.new_empty(0)
    if probs is not None:
        dots = (of_rows * _rows_at(permuted_tokens, places)).sum(-1)
        of_probs = torch.zeros_like(wide(probs)).flatten().index_add(0, pairs, dots)
        of_probs = of_probs.view_as(probs).to(probs.dtype)
        of_rows = of_rows * wide(probs).flatten().index_select(0, pairs).unsqueeze(-1)
    out = grad.new_zeros(rows + 1, grad.size(1)).index_copy(0, places.clamp(max=rows), of_rows)
    return out[:rows].to(unpermuted_tokens_grad.dtype), of_probs


def _top(values, k: int):
    """The k largest, the lower index first among equals."""
    ordered, places = torch.sort(values, dim=-1, descending=True, stable=True)
    return ordered[..., :k], places[..., :k]


def _check_gate(name, x, k, finished=None) -> None:
    require(x.dim() in (2, 3), f"{name}: The x should be 2D or 3D, but got {x.dim()}D.")
    floating(name, x=x)
    require(
        finished is None or finished.shape == x.shape[:-1],
        f"{name}: finished has shape {finished if finished is None else list(finished.shape)}; it must be "
        f"x's without the last, {list(x.shape[:-1])}.",
    )
    experts = x.size(-1)
    require(0 <= k <= experts, f"{name}: The k should be in [0, {experts}], but got {k}.")


@implements("npu_moe_gating_top_k_softmax")
def npu_moe_gating_top_k_softmax(x, finished=None, k=1):
    _check_gate("npu_moe_gating_top_k_softmax", x, k, finished)
    y, experts = _top(torch.softmax(wide(x), -1), k)
    return y.to(x.dtype), _finish(experts, finished, x.size(-1)), _row_numbers(experts)


def _finish(experts, finished, none: int):
    experts = experts.to(torch.int32)
    return (
        experts
        if finished is None
        else torch.where(finished.bool().unsqueeze(-1), none, experts).to(torch.int32)
    )


def _row_numbers(experts):
    """Pair (r, k) is number k * R + r."""
    rows = experts[..., 0].numel() if experts.size(-1) else 0
    k = experts.size(-1)
    numbers = torch.arange(k * rows, device=experts.device, dtype=torch.int32)
    return numbers.view(k, rows).t().reshape(experts.shape)


@implements("npu_moe_gating_top_k_softmax_v2")
def npu_moe_gating_top_k_softmax_v2(x, *, k=1, finished=None, renorm=0, output_softmax=False):
    name = "npu_moe_gating_top_k_softmax_v2"
    _check_gate(name, x, k, finished)
    require(renorm in (0, 1), f"{name}: renorm is {renorm}; allowed: 0, 1.", "VALUE")
    whole = wide(x)
    if renorm == 1:
        y, experts = _top(whole, k)
        y, full = torch.softmax(y, -1), whole.new_empty(0)
    else:
        full = torch.softmax(whole, -1)
        y, experts = _top(full, k)
        full = full if output_softmax else full.new_empty(0)
    return y.to(x.dtype), _finish(experts, finished, x.size(-1)), full.float()


@implements("npu_moe_gating_top_k")
def npu_moe_gating_top_k(
    x, k, *, bias=None, input_ids=None, tid2eid=None, k_group=1, group_count=1, group_select_mode=0,
    renorm=0, norm_type=0, out_flag=False, routed_scaling_factor=1.0, eps=1e-20,
):  # fmt: skip
    name = "npu_moe_gating_top_k"
    if input_ids is not None or tid2eid is not None:
        unsupported(f"{name}: input_ids and tid2eid are not supported here: leave them out.")
    experts = x.size(-1)
    _check_gate(name, x, k)
    require(renorm == 0, f"{name}: renorm is {renorm}; allowed: 0.", "VALUE")
    require(norm_type in (0, 1), f"{name}: norm_type is {norm_type}; allowed: 0, 1.", "VALUE")
    require(
        group_select_mode in (0, 1),
        f"{name}: group_select_mode is {group_select_mode}; allowed: 0, 1.",
        "VALUE",
    )
    require(
        group_count > 0 and experts % group_count == 0 and 0 < k_group <= group_count,
        f"{name}: group_count {group_count} must divide {experts} experts, and k_group {k_group} be at most it.",
    )
    norm = torch.softmax(wide(x), -1) if norm_type == 0 else torch.sigmoid(wide(x))
    choice = norm if bias is None else norm + wide(bias)
    if k_group < group_count:
        groups = choice.unflatten(-1, (group_count, -1))
        best = groups.amax(-1) if group_select_mode == 0 else _top(groups, 2)[0].sum(-1)
        kept = torch.zeros_like(best, dtype=torch.bool).scatter(-1, _top(best, k_group)[1], True)
        choice = groups.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(-2)
    chosen = _top(choice.detach(), k)[1]
    y = norm.gather(-1, chosen)
    if norm_type == 1:
        y = y / (y.sum(-1, keepdim=True) + eps)
    y = y * routed_scaling_factor
    return (
        y.to(x.dtype),
        chosen.to(torch.int32),
        norm.detach().float() if out_flag else norm.new_empty(0).float(),
    )


@implements("npu_moe_gating_top_k_backward")
def npu_moe_gating_top_k_backward(
    x_norm, grad_y, expertIdx, *, renorm=0, norm_type=0, routed_scaling_factor=1.0, eps=1e-20
):
    """From the scores npu_moe_gating_top_k returned: the gradient of its logits"""
    name = "npu_moe_gating_top_k_backward"
    require(renorm == 0, f"{name}: renorm is {renorm}; allowed: 0.", "VALUE")
    require(norm_type in (0, 1), f"{name}: norm_type is {norm_type}; allowed: 0, 1.", "VALUE")
    norm, chosen = wide(x_norm), expertIdx.to(torch.int64)
    grad = wide(grad_y) * routed_scaling_factor
    if norm_type == 1:
        y = norm.gather(-1, chosen)
        whole = y.sum(-1, keepdim=True) + eps
        grad = grad / whole - (grad * y).sum(-1, keepdim=True) / (whole * whole)
    of_norm = torch.zeros_like(norm).scatter(-1, chosen, grad)
    if norm_type == 1:
        out = of_norm * norm * (1 - norm)
    else:
        out = norm * (of_norm - (of_norm * norm).sum(-1, keepdim=True))
    return out.to(grad_y.dtype)


@implements("npu_moe_init_routing")
def npu_moe_init_routing(x, row_idx, expert_idx, active_num):
    name = "npu_moe_init_routing"
    _rank(name, "x", x, (2,))
    _rank(name, "expert_idx", expert_idx, (2,))
    require(
        row_idx.shape == expert_idx.shape,
        f"{name}: row_idx has shape {list(row_idx.shape)} and expert_idx {list(expert_idx.shape)}; they must be the same.",
    )
    rows, k = expert_idx.shape
    experts, order = torch.sort(expert_idx.flatten(), stable=True)
    sources = row_idx.flatten().to(torch.int64).index_select(0, order)
    count = min(rows, active_num) * k
    places = torch.arange(rows * k, device=x.device, dtype=torch.int32)
    expanded_rows = torch.empty_like(places).scatter(0, sources, places)
    return x.index_select(0, sources[:count] % rows), expanded_rows, experts.to(torch.int32)


@implements("npu_moe_compute_expert_tokens")
def npu_moe_compute_expert_tokens(sorted_expert_for_source_row, num_expert):
    name = "npu_moe_compute_expert_tokens"
    _rank(name, "sorted_expert_for_source_row", sorted_expert_for_source_row, (1,))
    require(num_expert > 0, f"{name}: num_expert is {num_expert}; it must be positive.", "VALUE")
    experts = torch.arange(num_expert, device=sorted_expert_for_source_row.device)
    return (
        (sorted_expert_for_source_row[None, :] <= experts[:, None])
        .sum(1)
        .to(sorted_expert_for_source_row.dtype)
    )


@implements("npu_moe_finalize_routing")
def npu_moe_finalize_routing(
    expanded_permuted_rows, skip1, skip2, bias, scales, expanded_src_to_dst_row,
    export_for_source_row, drop_pad_mode=0, k=1,
):  # fmt: skip
    name = "npu_moe_finalize_routing"
    require(
        drop_pad_mode in (0, 1, 2, 3),
        f"{name}: drop_pad_mode is {drop_pad_mode}; allowed: 0 to 3.",
        "VALUE",
    )
    require(
        bias is None or export_for_source_row is not None,
        f"{name}: export_for_source_row must be given with bias.",
    )
    rows = wide(expanded_permuted_rows).flatten(0, -2)
    index = expanded_src_to_dst_row.to(torch.int64)
    k = scales.size(1) if scales is not None else k
    index = index.view(-1, k) if drop_pad_mode >= 2 else index.view(k, -1).t()
    gathered = rows.index_select(0, index.clamp(min=0).flatten()).unflatten(0, index.shape)
    if drop_pad_mode in (1, 3):
        gathered = gathered.masked_fill((index < 0).unsqueeze(-1), 0.0)
    if bias is not None:
        gathered = gathered + wide(bias)[export_for_source_row.to(torch.int64)]
    if scales is not None:
        gathered = gathered * wide(scales).unsqueeze(-1)
    out = gathered.sum(1)
    for skip in (skip1, skip2):
        out = out if skip is None else out + wide(skip)
    return out.to(expanded_permuted_rows.dtype)
