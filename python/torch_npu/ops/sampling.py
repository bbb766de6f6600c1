# SPDX-License-Identifier: Apache-2.0
"""Random choices, sampling of tokens, and the step from one token to the next."""

import math

import torch

from torch_npu.ops import implements
from torch_npu.ops._check import floating, require, wide, within


def _ranks(keys):
    """The place of each element (n) in ascending order."""
    order = torch.argsort(keys)
    return torch.empty_like(order).scatter(0, order, torch.arange(keys.numel(), device=keys.device))


def _random_keys(wanted, generator=None):
    """Random numbers where `wanted` is True, larger ones elsewhere."""
    keys = torch.rand(wanted.shape, device=wanted.device, generator=generator)
    return torch.where(wanted, keys, torch.full_like(keys, 2.0))


@implements("npu_random_choice_with_mask")
def npu_random_choice_with_mask(x, count=256, seed=0, seed2=0):
    """(positions (count, dimensions), which of them are real); the others are 0."""
    name = "npu_random_choice_with_mask"
    require(x.dtype == torch.bool, f"{name}: x is {x.dtype}; allowed: torch.bool.", "TYPE")
    require(1 <= x.dim() <= 5, f"{name}: x has {x.dim()} dimensions; allowed: 1 to 5.")
    require(count >= 0, f"{name}: count is {count}; it must not be negative.", "VALUE")
    generator = None
    if seed or seed2:
        generator = torch.Generator(x.device).manual_seed((seed << 32) ^ seed2)
    flat = x.flatten()
    order = torch.argsort(_random_keys(flat, generator))[:count]
    order = torch.cat((order, order.new_zeros(count - order.numel())))
    real = torch.arange(count, device=x.device) < flat.sum()
    positions, rest = [], order
    for size in reversed(x.shape):
        positions.insert(0, rest % max(size, 1))
        rest = rest // max(size, 1)
    return torch.where(real[:, None], torch.stack(positions, -1), 0).to(torch.int32), real


@implements("npu_sub_sample")
def npu_sub_sample(input, per_images, positive_fraction):
    """Labels with all but `per_images` of them replaced by -1."""
    name = "npu_sub_sample"
    require(
        input.dim() == 1 and input.dtype == torch.int32,
        f"{name}: the input is {input.dtype} {list(input.shape)}; allowed: torch.int32 of one dimension.",
    )
    require(
        per_images >= 0 and 0 <= positive_fraction <= 1,
        f"{name}: per_images is {per_images} and positive_fraction {positive_fraction}; allowed: not "
        "negative, and 0 to 1.",
        "VALUE",
    )
    positive, negative = input > 0, input == 0
    positive = positive & (_ranks(_random_keys(positive)) < int(per_images * positive_fraction))
    rest = per_images - positive.sum()
    negative = negative & (_ranks(_random_keys(negative)) < rest)
    return torch.where(positive | negative, input, torch.full_like(input, -1))


@implements("npu_sim_exponential_")
def npu_sim_exponential_(input, lambd=1.0, *, generator=None):
    name = "npu_sim_exponential_"
    require(lambd > 0, f"{name} expects lambd > 0.0, but found lambd={lambd}", "VALUE")
    floating(name, input=input)
    if math.isinf(lambd):
        return input.zero_()
    u = torch.rand(input.shape, dtype=wide(input).dtype, device=input.device, generator=generator)
    return input.copy_(-torch.log1p(-u) / lambd)


# ---- tokens
_POST = ("None", "qSample", "multiNomial")


def _check_sample(name, logits, top_k, top_p, q, min_ps, ks_max, post_sample) -> None:
    require(logits.dim() == 2, f"{name}: logits has {logits.dim()} dimensions; allowed: 2.")
    floating(name, logits=logits, top_p=top_p, q=q, min_ps=min_ps)
    for what, x in (("top_k", top_k), ("top_p", top_p), ("min_ps", min_ps)):
        require(
            x is None or list(x.shape) == [logits.size(0)],
            f"{name}: {what} has shape {x if x is None else list(x.shape)}; it must be [{logits.size(0)}].",
        )
    require(
        q is None or q.shape == logits.shape,
        f"{name}: q has shape {q if q is None else list(q.shape)}; it must be logits' {list(logits.shape)}.",
    )
    require(1 <= ks_max <= 1024, f"{name}: ks_max is {ks_max}; allowed: 1 to 1024.", "VALUE")
    require(
        post_sample in _POST,
        f"{name}: post_sample is {post_sample}; allowed: {', '.join(_POST)}.",
        "VALUE",
    )


def _first(x):
    """True at the first place of each row."""
    return torch.arange(x.size(-1), device=x.device) == 0


def _candidates(logits, top_k, top_p, min_ps, ks_max, input_is_logits):
    """(places in logits, probabilities, which are kept), each (B, V), in the order of the candidates."""
    count = logits.size(1)
    most = min((ks_max + 7) // 8 * 8, 1024, count)
    by_k = ((top_k >= 1) & (top_k <= most))[:, None]
    by_p = (top_p < 1)[:, None]
    numbers = torch.arange(count, device=logits.device)
    values, order = torch.sort(logits, dim=-1, descending=True, stable=True)
    sorted_ = by_k | by_p
    values = torch.where(sorted_, values, logits)
    order = torch.where(sorted_, order, numbers)
    keep = ~by_k | (numbers < top_k[:, None])
    if input_is_logits:
        probs = torch.softmax(values.masked_fill(~keep, -math.inf), -1)
    else:
        probs = values * keep
    before = probs.cumsum(-1) - probs
    keep = keep & (~by_p | _first(probs) | (before < wide(top_p)[:, None]))
    if min_ps is not None:
        least = wide(min_ps)[:, None]
        kept = probs.masked_fill(~keep, -math.inf)
        best = kept.amax(-1, keepdim=True)
        alone = numbers == kept.argmax(-1, keepdim=True)
        enough = torch.where(least >= 1, alone, probs >= least * best)
        keep = keep & ((least <= 0) | enough)
    return order, probs, keep


@implements("npu_top_k_top_p_sample")
def npu_top_k_top_p_sample(
    logits, top_k, top_p, q=None, eps=1e-8, is_need_logits=False, top_k_guess=32, min_ps=None,
    ks_max=1024, input_is_logits=True, post_sample="qSample", generator=None,
):  # fmt: skip
    """(token of each row, logits of the candidates)"""
    name = "npu_top_k_top_p_sample"
    _check_sample(name, logits, top_k, top_p, q, min_ps, ks_max, post_sample)
    x = wide(logits)
    order, probs, keep = _candidates(x, top_k, top_p, min_ps, ks_max, input_is_logits)
    if post_sample == "multiNomial":
        chosen = torch.multinomial(probs * keep, 1, generator=generator)
    else:
        score = probs if q is None or post_sample == "None" else probs / (wide(q).abs() + eps)
        chosen = score.masked_fill(~keep, -math.inf).argmax(-1, keepdim=True)
    kept = torch.zeros_like(keep).scatter(1, order, keep)
    rest = torch.full_like(x, -math.inf if input_is_logits else 0.0)
    return order.gather(1, chosen).squeeze(1), torch.where(kept, x, rest).float()


def _advance(name, **tensors):
    """Checks that the tensors are integers of one dimension and of one size."""
    (first, x), *rest = tensors.items()
    for key, other in rest:
        require(
            other.dim() == 1 and other.numel() == x.numel(),
            f"{name}: {key} has shape {list(other.shape)}; it must be {first}'s {list(x.shape)}.",
        )


@implements("npu_advance_step_flashattn")
def npu_advance_step_flashattn(
    input_tokens, sampled_token_ids, input_positions, seq_lens, slot_mapping, block_tables, num_seqs,
    num_queries, block_size, *, spec_token=None, accepted_num=None,
):  # fmt: skip
    """Moves the inputs of a decoding step on, in place.

    Without spec_token the page of row i is block_tables.flatten()[p // block_size] plus i times the
    table's row stride, as Ascend's document and kernel have it, and not the entry of row i that vLLM
    means: both agree for row 0 only. With spec_token it is the entry of the sequence's row.
    """
    name = "npu_advance_step_flashattn"
    outs = {
        "input_tokens": input_tokens, "input_positions": input_positions, "seq_lens": seq_lens,
        "slot_mapping": slot_mapping,
    }  # fmt: skip
    _advance(name, **outs)
    require(block_size > 0, f"{name}: block_size is {block_size}; it must be positive.", "VALUE")
    require(
        0 <= num_queries <= num_seqs,
        f"{name}: num_queries is {num_queries} and num_seqs {num_seqs}; allowed: 0 to num_seqs.",
        "VALUE",
    )
    require(
        (spec_token is None) == (accepted_num is None),
        f"{name}: spec_token and accepted_num go together: give both or none.",
    )
    if spec_token is not None:
        made = _advanced_ahead(
            name, sampled_token_ids, input_positions, block_tables, num_seqs, block_size, spec_token,
            accepted_num,
        )  # fmt: skip
    else:
        made = _advanced(
            name, sampled_token_ids, seq_lens, block_tables, num_seqs, num_queries, block_size
        )
    for out, values in zip(outs.values(), made):
        out.copy_(values)


def _advanced(name, sampled, seq_lens, block_tables, num_seqs, num_queries, block_size):
    """(tokens, positions, lengths, slots), one row for each sequence."""
    require(
        seq_lens.numel() == num_seqs and sampled.numel() >= num_queries,
        f"{name}: seq_lens has {seq_lens.numel()} numbers and sampled_token_ids {sampled.numel()}; num_seqs "
        f"{num_seqs} and num_queries {num_queries} need as many.",
    )
    position = seq_lens[:num_queries].to(torch.int64)
    column = position // block_size
    pages = block_tables.flatten().to(torch.int64)
    within(name, "seq_lens", position, 0, pages.numel() * block_size - 1)
    row = torch.arange(num_queries, device=seq_lens.device)
    page = pages[column] + block_tables.stride(0) * row
    slot = page * block_size + position % block_size
    idle = position.new_zeros(num_seqs - num_queries)
    token = sampled.flatten()[:num_queries].to(torch.int64)
    return (
        torch.cat((token, idle)),
        torch.cat((position, idle)),
        torch.cat((position + 1, seq_lens[num_queries:].to(torch.int64))),
        torch.cat((slot, idle - 1)),
    )


def _advanced_ahead(
    name, sampled, input_positions, block_tables, num_seqs, block_size, spec_token, accepted_num
):  # fmt: skip
    """The same with guessed tokens: each sequence has one row for its token and one for each guess."""
    ahead = spec_token.view(num_seqs, -1).to(torch.int64)
    each = 1 + ahead.size(1)
    require(
        input_positions.numel() == num_seqs * each and accepted_num.numel() == num_seqs
        and list(sampled.shape) == [num_seqs, each] and block_tables.size(0) >= num_seqs,
        f"{name}: {num_seqs} sequences with {each - 1} guesses need {num_seqs * each} positions (given "
        f"{input_positions.numel()}), {num_seqs} accepted_num (given {accepted_num.numel()}), "
        f"sampled_token_ids {[num_seqs, each]} (given {list(sampled.shape)}) and {num_seqs} rows of "
        f"block_tables (given {block_tables.size(0)}).",
    )  # fmt: skip
    sampled = sampled.to(torch.int64)
    last = ((sampled >= 0).long().cumprod(1).sum(1) - 1).clamp(min=0)
    tokens = torch.cat((sampled.gather(1, last[:, None]), ahead), 1)
    moved = input_positions.view(num_seqs, each).to(torch.int64)
    moved = moved + accepted_num.view(-1, 1).to(torch.int64) + 1
    within(
        name, "input_positions + accepted_num + 1", moved, 0, block_tables.size(1) * block_size - 1
    )
    rows = torch.arange(num_seqs, device=moved.device)[:, None]
    page = block_tables.to(torch.int64)[rows, moved // block_size]
    slot = page * block_size + moved % block_size
    return tokens.flatten(), moved.flatten(), (moved + 1).flatten(), slot.flatten()
