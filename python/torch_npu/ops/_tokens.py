# SPDX-License-Identifier: Apache-2.0
"""Rows of padded (BSND), packed (TND) and paged (PA_BSND) tensors, addressed by sequence and place.

Lengths stay tensors, so that nothing here depends on their values and compilers trace it.
"""

from typing import NamedTuple

import torch

from torch_npu.ops._check import require


class Tokens(NamedTuple):
    """Where each row of a tensor (G, S, ...) stands; a packed tensor is one group of all its rows."""

    sequence: torch.Tensor  # (G, S): number of its sequence
    place: torch.Tensor  # (G, S): place in it; beyond the length where the row belongs to none
    lengths: torch.Tensor  # (B)
    starts: torch.Tensor  # (B): row of place 0, over all groups

    @property
    def live(self) -> torch.Tensor:
        return self.place < self.lengths[self.sequence]


def _lengths(name, given, argument: str, device):
    if given is None:
        return None
    lengths = torch.as_tensor(given, device=device).to(torch.int64)
    require(
        lengths.dim() == 1,
        f"{name}: {argument} has shape {list(lengths.shape)}; allowed: one number per sequence.",
    )
    return lengths


def padded(name, batch: int, size: int, given, argument: str, device) -> Tokens:
    """Rows (batch, size); lengths are one per batch, None: full."""
    lengths = _lengths(name, given, argument, device)
    lengths = torch.full((batch,), size, device=device) if lengths is None else lengths
    require(
        lengths.size(0) == batch,
        f"{name}: {argument} has {lengths.size(0)} numbers; the batch has {batch} sequences.",
    )
    numbers = torch.arange(batch, device=device)
    places = torch.arange(size, device=device)
    return Tokens(
        numbers[:, None].expand(batch, size),
        places.expand(batch, size),
        lengths.clamp(0, size),
        numbers * size,
    )


def packed(name, rows: int, given, argument: str, device) -> Tokens:
    """Rows one sequence after another; lengths are cumulative ends, None: one sequence."""
    ends = _lengths(name, given, argument, device)
    ends = torch.full((1,), rows, device=device) if ends is None else ends
    require(ends.size(0) > 0, f"{name}: {argument} is empty; give the end of each sequence.")
    ends = torch.cummax(ends.clamp(0, rows), 0).values
    starts = torch.cat((ends.new_zeros(1), ends[:-1]))
    numbers = torch.arange(rows, device=device)
    sequence = torch.searchsorted(ends, numbers, right=True).clamp(max=ends.size(0) - 1)
    return Tokens(sequence[None], (numbers - starts[sequence])[None], (ends - starts), starts)


def tokens_of(name, x, layout: str, given, argument: str) -> Tokens:
    if layout == "TND":
        return packed(name, x.size(0), given, argument, x.device)
    return padded(name, x.size(0), x.size(1), given, argument, x.device)


def check_layout(name, what: str, layout: str, x, allowed, trailing: int = 2) -> None:
    """`trailing`: dimensions after those of the tokens."""
    text = " and ".join(allowed) if len(allowed) < 3 else ", ".join(allowed)
    require(
        layout in allowed,
        f"{name}: The layout of {what} only support {text}, but got {layout}.",
        "VALUE",
    )
    rank = (1 if layout == "TND" else 2) + trailing
    require(
        x.dim() == rank,
        f"{name}: {what} has shape {list(x.shape)}; layout {layout} takes {rank} dimensions.",
    )


class Keys:
    """Rows of keys (R, ...), found by sequence and place; places that are not there are told."""

    def __init__(self, name, x, layout: str, given, argument: str, block_table=None):
        self.layout, self.shape = layout, x.shape
        paged = layout == "PA_BSND"
        require(
            (block_table is not None) == paged,
            f"{name}: block_table is {'given' if block_table is not None else 'None'} and the layout "
            f"of key is {layout}; PA_BSND needs it, the other layouts take none.",
        )
        if not paged:
            self.table, self.tokens = None, tokens_of(name, x, layout, given, argument)
            self.rows = x if layout == "TND" else x.flatten(0, 1)
            return
        require(
            block_table.dim() == 2 and given is not None,
            f"{name}: block_table has shape {list(block_table.shape)} and {argument} is "
            f"{'None' if given is None else 'given'}; allowed: (sequences, blocks), and a length of "
            "each sequence.",
        )
        self.table, self.blocks, self.block_size = block_table.to(torch.int64), x.size(0), x.size(1)
        batch, columns = block_table.shape
        self.tokens = padded(
            name, batch, columns * self.block_size, given, argument, block_table.device
        )
        self.rows = x.flatten(0, 1)

    @property
    def lengths(self):
        return self.tokens.lengths

    def find(self, sequence, place):
        """(row, whether it is there); a row that is not there is some other one."""
        there = (place >= 0) & (place < self.lengths[sequence])
        place = torch.where(there, place, torch.zeros_like(place))
        if self.table is None:
            row = self.tokens.starts[sequence] + place
        else:
            block = self.table[
                sequence, (place // self.block_size).clamp(max=self.table.size(1) - 1)
            ]
            there = there & (block >= 0) & (block < self.blocks)
            row = block * self.block_size + place % self.block_size
        return row.clamp(0, max(self.rows.size(0) - 1, 0)), there

    def dense(self, *tensors):
        """(tokens, whether each is there, tensors (G, S, ...)); tensors lie as the keys do."""
        if self.table is None:
            there = self.tokens.live
            return self.tokens, there, [x[None] if self.layout == "TND" else x for x in tensors]
        row, there = self.find(self.tokens.sequence, self.tokens.place)
        return self.tokens, there, [x.flatten(0, 1)[row] for x in tensors]


def check_batches(name, queries: Tokens, keys: Tokens) -> None:
    require(
        queries.lengths.size(0) == keys.lengths.size(0),
        f"{name}: query has {queries.lengths.size(0)} sequences and key {keys.lengths.size(0)}; they "
        "must have as many.",
    )


def last_key(queries: Tokens, keys: Tokens, sparse_mode: int):
    """The last place of the key that each query may see: (G, S)."""
    length = keys.lengths[queries.sequence]
    if sparse_mode == 0:
        return length - 1
    return torch.minimum(length - queries.lengths[queries.sequence] + queries.place, length - 1)


def check_mode(name, sparse_mode, pre_tokens, next_tokens) -> None:
    require(sparse_mode in (0, 3), f"{name}: sparse_mode is {sparse_mode}; allowed: 0, 3.", "VALUE")
    whole = 9223372036854775807
    require(
        pre_tokens == whole and next_tokens == whole,
        f"{name}: pre_tokens is {pre_tokens} and next_tokens {next_tokens}; both must stay {whole}.",
        "VALUE",
    )


def pieces(count: int, each: int, budget: int = 1 << 22):
    """Ranges of rows, such that `each` elements per row stay within the budget."""
    step = max(budget // max(each, 1), 1)
    return [(at, min(at + step, count)) for at in range(0, count, step)] or [(0, 0)]
