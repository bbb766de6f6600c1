# SPDX-License-Identifier: Apache-2.0
"""Depthwise causal convolutions over time: whole sequences, and with states in a cache."""

import torch
import torch.nn.functional as F

from torch_npu.ops import implements
from torch_npu.ops._check import floating, refuse_given, require, wide


def _check_masked(name, x, weight, mask) -> None:
    floating(name, input=x, weight=weight)
    require(x.dim() == 3, f"{name}: input has {x.dim()} dimensions; allowed: 3, (S, B, H).")
    require(
        weight.dim() == 2 and weight.size(1) == x.size(2) and weight.size(0) > 0,
        f"{name}: weight has shape {list(weight.shape)}; allowed: (W, {x.size(2)}) with W at least 1.",
    )
    require(
        mask is None or mask.shape == (x.size(1), x.size(0)),
        f"{name}: mask has shape {None if mask is None else list(mask.shape)}; it must be {[x.size(1), x.size(0)]}.",
    )


def _masked(x, mask):
    return wide(x) if mask is None else wide(x) * mask.t().unsqueeze(-1)


@implements("npu_masked_causal_conv1d")
def npu_masked_causal_conv1d(input, weight, *, mask=None):
    """A step's result is the sum of weight[k] and the steps before it; weight's last row is the step itself."""
    _check_masked("npu_masked_causal_conv1d", input, weight, mask)
    steps, width = input.size(0), weight.size(0)
    padded, w = F.pad(wide(input), (0, 0, 0, 0, width - 1, 0)), wide(weight)
    y = sum(w[k] * padded.narrow(0, k, steps) for k in range(width))
    return _masked(y, mask).to(input.dtype)


@implements("npu_masked_causal_conv1d_backward")
def npu_masked_causal_conv1d_backward(grad_output, input, weight, *, mask=None):
    name = "npu_masked_causal_conv1d_backward"
    _check_masked(name, input, weight, mask)
    require(
        grad_output.shape == input.shape,
        f"{name}: grad_output has shape {list(grad_output.shape)}; it must be input's {list(input.shape)}.",
    )
    steps, width = input.size(0), weight.size(0)
    g, w = _masked(grad_output, mask), wide(weight)
    after = F.pad(g, (0, 0, 0, 0, 0, width - 1))
    before = F.pad(wide(input), (0, 0, 0, 0, width - 1, 0))
    of_input = sum(w[k] * after.narrow(0, width - 1 - k, steps) for k in range(width))
    of_weight = torch.stack([(g * before.narrow(0, k, steps)).sum((0, 1)) for k in range(width)])
    return of_input.to(grad_output.dtype), of_weight.to(grad_output.dtype)


def _check_lines(name, lines, states) -> None:
    require(
        not bool(((lines < 0) | (lines >= states.size(0))).any()),
        f"{name}: cache_indices names the lines {lines.tolist()}; allowed: 0 to {states.size(0) - 1}, the lines of "
        "conv_states, or pad_slot_id.",
        "VALUE",
    )


class _Sequences:
    """Rows of packed or padded sequences, each after the rows of its cached state."""

    def __init__(self, name, x, weight, states, query_start_loc, tables, options):
        self.x, self.width = x.reshape(-1, x.size(-1)), weight.size(0)
        rows, device = self.x.size(0), x.device
        if x.dim() == 2:
            ends = query_start_loc.to(torch.int64)
            self.start, self.length = ends[:-1], ends[1:] - ends[:-1]
        else:
            self.start = torch.arange(x.size(0), device=device) * x.size(1)
            self.length = torch.full_like(self.start, x.size(1))
        batches = self.start.size(0)
        every = torch.arange(batches, device=device)
        table = (
            every if tables["cache_indices"] is None else tables["cache_indices"].to(torch.int64)
        )
        given = {k: None if t is None else t.to(torch.int64) for k, t in tables.items()}
        self.blocks = given["block_idx_last_scheduled_token"] is not None
        self.table = table
        self.line = table[every, given["initial_state_idx"]] if self.blocks else table
        self.target = (
            table[every, given["block_idx_last_scheduled_token"]] if self.blocks else table
        )
        self.active = self.line != options["pad_slot_id"]
        self.computed = given["num_computed_tokens"]
        held, accepted = states.size(1) - (self.width - 1), given["num_accepted_tokens"]
        self.offset = torch.full_like(self.start, held) if accepted is None else accepted - 1
        self.fresh = torch.zeros_like(self.active) if self.computed is None else self.computed == 0
        self.offset = self.offset.masked_fill(self.fresh, 0)
        self._check(name, rows, states, query_start_loc, held)
        self.states = states
        self.safe_line = torch.where(self.active, self.line, 0)

    def _check(self, name, rows, states, ends, held) -> None:
        require(
            ends is None or (int(ends[-1]) == rows and int(ends[0]) == 0 and bool((self.length >= 0).all())),
            f"{name}: query_start_loc is {None if ends is None else ends.tolist()}; it rises from 0 to x's {rows} "
            "rows.",
        )  # fmt: skip
        _check_lines(name, self.line[self.active], states)
        wrong = self.active & ((self.offset < 0) | (self.offset > max(held, 0)))
        require(
            not bool(wrong.any()),
            f"{name}: num_accepted_tokens is {(self.offset + 1).tolist()}; allowed: 1 to {held + 1}, which "
            f"conv_states of {states.size(1)} rows holds.",
            "VALUE",
        )

    def at(self, batch, local):
        """Rows `local` of sequences; negative ones come from the state, or are zero in a fresh sequence."""
        from_x = (self.start[batch] + local).clamp(0, max(self.x.size(0) - 1, 0))
        row = (self.offset[batch] + self.width - 1 + local).clamp(0, self.states.size(1) - 1)
        before = wide(self.states[self.safe_line[batch], row])
        before = before.masked_fill(self.fresh[batch].unsqueeze(-1), 0)
        if not self.x.size(0):
            return before
        return torch.where((local >= 0).unsqueeze(-1), wide(self.x[from_x]), before)

    def tokens(self):
        """(sequence, place in it) of each row of x."""
        rows = torch.arange(self.x.size(0), device=self.x.device)
        batch = torch.searchsorted(self.start + self.length, rows, right=True)
        return batch, rows - self.start[batch]


def _convolve(sequences, weight, residual: bool, pangu: bool):
    """(results of x's rows, those of skipped sequences 0; which rows are not skipped)"""
    batch, place = sequences.tokens()
    width = sequences.width
    y = torch.zeros_like(wide(sequences.x))
    for k in range(width):
        y = y + wide(weight)[k] * sequences.at(batch, place + (k - width + 1))
    y = y + wide(sequences.x) if residual else y
    kept = sequences.active[batch]
    shown = kept
    if pangu:
        computed = sequences.computed
        computed = torch.zeros_like(sequences.start) if computed is None else computed
        shown = kept & (place >= (width - 1 - computed)[batch])
    return torch.where(shown.unsqueeze(-1), y, 0).to(sequences.x.dtype), kept


def _new_states(name, sequences, first, last, block_size: int):
    """[(lines, rows of the state, their numbers)] to write, all read from the states before."""
    states, active = sequences.states, sequences.active
    size, width = states.size(1), sequences.width
    which = active.nonzero().squeeze(1)
    # The state ends with the newest rows; rows older than all there is stay as they are.
    slots = torch.arange(size, device=states.device)
    local = sequences.length[which, None] - size + slots
    rows = sequences.at(which[:, None].expand_as(local), local)
    target = sequences.target[which]
    older = local < -(sequences.offset[which, None] + width - 1)
    _check_lines(name, target, states)
    writes = [(target, slice(None), torch.where(older.unsqueeze(-1), wide(states[target]), rows))]
    if sequences.blocks:
        n = (last - first)[which]
        computed, length = sequences.computed, sequences.length[which]
        computed = torch.zeros_like(n) if computed is None else computed[which]
        extra = (length - (block_size - computed % block_size)) % block_size
        full = length - extra - block_size * (extra == 0)
        steps = torch.arange(sequences.table.size(1), device=states.device)
        batch, step = (steps < n.unsqueeze(-1)).nonzero().unbind(1)
        place = full[batch] - (n[batch] - step - 1) * block_size
        local = place[:, None] + torch.arange(1 - width, 0, device=states.device)
        whole = which[batch]
        rows = sequences.at(whole[:, None].expand_as(local), local)
        lines = sequences.table[whole, first[whole] + step]
        _check_lines(name, lines, states)
        writes.append((lines, slice(size - width + 1, None), rows))
    return writes


def _check_fused(name, x, weight, conv_states, query_start_loc, options) -> None:
    refuse_given(name, bias=options["bias"])
    activation = options["activation"]
    require(
        activation in (None, "None", "none", ""),
        f"{name}: activation is {activation!r}; the operator applies none: leave it out.",
    )
    floating(name, x=x, weight=weight, conv_states=conv_states)
    require(
        x.dim() == (2 if query_start_loc is not None else 3),
        f"{name}: x has {x.dim()} dimensions; allowed: 2, (T, dim), with query_start_loc, or 3, (B, S, dim), without.",
    )
    require(
        weight.dim() == 2 and weight.size(0) > 0 and weight.size(1) == x.size(-1),
        f"{name}: weight has shape {list(weight.shape)}; allowed: (K, {x.size(-1)}) with K at least 1.",
    )
    require(
        conv_states.dim() == 3
        and conv_states.size(1) >= weight.size(0) - 1
        and conv_states.size(2) == x.size(-1),
        f"{name}: conv_states has shape {list(conv_states.shape)}; allowed: (lines, at least {weight.size(0) - 1}, "
        f"{x.size(-1)}).",
    )
    require(
        options["conv_mode"] in ("default", "pangu"),
        f"{name}: conv_mode is {options['conv_mode']!r}; allowed: 'default', 'pangu'.",
    )
    require(
        options["residual_connection"] in (0, 1),
        f"{name}: residual_connection is {options['residual_connection']}; allowed: 0, 1.",
        "VALUE",
    )


_TABLES = ("cache_indices", "num_accepted_tokens", "num_computed_tokens", "block_idx_first_scheduled_token",
           "block_idx_last_scheduled_token", "initial_state_idx")  # fmt: skip


def _check_tables(name, batches: int, tables) -> None:
    together = (
        "block_idx_first_scheduled_token",
        "block_idx_last_scheduled_token",
        "initial_state_idx",
    )
    blocks = [tables[k] is not None for k in together]
    require(
        not any(blocks) or (all(blocks) and tables["cache_indices"] is not None),
        f"{name}: {', '.join(together)} and cache_indices are given together.",
    )
    for what, t in tables.items():
        dims = 2 if what == "cache_indices" and all(blocks) else 1
        require(
            t is None or (t.dim() == dims and t.size(0) == batches),
            f"{name}: {what} has shape {None if t is None else list(t.shape)}; allowed: {dims} dimensions, the first "
            f"{batches}, the number of sequences.",
        )
    if all(blocks):
        first, last, start = (tables[k] for k in together)
        columns = tables["cache_indices"].size(1)
        for what, t in zip(together, (first, last, start)):
            require(
                bool(((t >= 0) & (t < columns)).all()) and bool((first <= last).all()),
                f"{name}: {what} is {t.tolist()}; allowed: 0 to {columns - 1}, the columns of cache_indices, the first "
                "block not behind the last.",
                "VALUE",
            )


def _fused(name, x, weight, conv_states, query_start_loc, options):
    """(results, which rows of x they belong to); conv_states is changed when nothing can fail any more."""
    _check_fused(name, x, weight, conv_states, query_start_loc, options)
    tables = {k: options[k] for k in _TABLES}
    batches = x.size(0) if query_start_loc is None else query_start_loc.numel() - 1
    _check_tables(name, batches, tables)
    sequences = _Sequences(name, x, weight, conv_states, query_start_loc, tables, options)
    pangu, residual = options["conv_mode"] == "pangu", options["residual_connection"] == 1
    y, kept = _convolve(sequences, weight, residual, pangu)
    first, last = (
        None if tables[k] is None else tables[k].to(torch.int64)
        for k in ("block_idx_first_scheduled_token", "block_idx_last_scheduled_token")
    )
    writes = _new_states(name, sequences, first, last, options["block_size"])
    for lines, rows, numbers in writes:
        conv_states[lines, rows] = numbers.to(conv_states.dtype)
    return y.view(x.shape), kept.view(x.shape[:-1])


def _options(bias=None, num_accepted_tokens=None, activation="None", pad_slot_id=-1, residual_connection=0,
             cache_indices=None, num_computed_tokens=None, block_idx_first_scheduled_token=None,
             block_idx_last_scheduled_token=None, initial_state_idx=None, block_size=128, conv_mode="default",
             initial_state_mode=None, run_mode=0, max_query_len=-1):  # fmt: skip
    """What the operators take beside their tensors; the last three say nothing to today's kernel."""
    return locals()


def _meta(x, weight, conv_states, *, query_start_loc=None, **rest):
    _check_fused(
        "npu_fused_causal_conv1d", x, weight, conv_states, query_start_loc, _options(**rest)
    )
    return torch.empty_like(x)


@implements("npu_fused_causal_conv1d", meta=_meta)
def npu_fused_causal_conv1d(x, weight, conv_states, *, query_start_loc=None, **rest):
    name = "npu_fused_causal_conv1d"
    return _fused(name, x, weight, conv_states, query_start_loc, _options(**rest))[0]


def _meta_v2(x, weight, conv_states, *, query_start_loc=None, **rest):
    _check_fused(
        "npu_fused_causal_conv1d_v2", x, weight, conv_states, query_start_loc, _options(**rest)
    )


@implements("npu_fused_causal_conv1d_v2", meta=_meta_v2)
def npu_fused_causal_conv1d_v2(x, weight, conv_states, *, query_start_loc=None, **rest):
    """The results replace x; rows of skipped sequences stay as they are."""
    name = "npu_fused_causal_conv1d_v2"
    y, kept = _fused(name, x, weight, conv_states, query_start_loc, _options(**rest))
    x.copy_(torch.where(kept.unsqueeze(-1), y, x))
