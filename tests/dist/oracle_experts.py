# SPDX-License-Identifier: Apache-2.0
"""Dispatch of tokens to experts on several ranks and their combination, as one process computes them.

Plain Python and PyTorch on the CPU in float64, written from Ascend's documents. Lists have an entry for
each rank. Expert e lives on rank shared_ranks + e // experts per rank; the first ranks serve the shared
experts.
"""

import dataclasses

import torch


@dataclasses.dataclass
class Layout:
    ranks: int
    experts: int  # without the shared ones
    shared_ranks: int = 0
    shared_experts: int = 0
    zero: int = 0  # experts without weights follow the others: zero, copy, const
    copy: int = 0
    const: int = 0

    @property
    def local(self) -> int:
        """Experts of a rank that is not shared."""
        return self.experts // (self.ranks - self.shared_ranks)

    def home(self, expert: int) -> tuple[int, int]:
        """(rank, number on that rank)"""
        return self.shared_ranks + expert // self.local, expert % self.local

    def shared_home(self, shared: int, source: int) -> int:
        """The rank that computes a shared expert for the tokens of a rank."""
        per = self.shared_ranks // self.shared_experts
        return shared * per + source % per

    def experts_of(self, rank: int) -> int:
        return 1 if rank < self.shared_ranks else self.local

    def rows(self, tokens: int, choices: int, rank: int, version: int) -> int:
        """The first size of expand_x; `tokens` is global_bs or the ranks' largest number times the ranks."""
        if rank >= self.shared_ranks:
            return tokens * min(self.local, choices)
        if version == 1:
            return tokens // self.shared_ranks
        per = self.shared_ranks // self.shared_experts
        return tokens // self.ranks * -(-self.ranks // per)


def active(mask, token: int, choice: int) -> bool:
    """A mask (bs) holds tokens, (bs, K) pairs; without one all take part."""
    if mask is None:
        return True
    return bool(mask[token] if mask.dim() == 1 else mask[token, choice])


def token_active(mask, token: int) -> bool:
    return mask is None or bool(mask[token] if mask.dim() == 1 else mask[token].any())


def sent(layout: Layout, expert_ids, masks=None) -> list[dict]:
    """For each rank: {(local expert, source): [(token, choice)]}; choice is -1 - j for shared expert j."""
    masks = masks or [None] * layout.ranks
    arrived: list[dict] = [
        {(i, s): [] for i in range(layout.experts_of(r)) for s in range(layout.ranks)}
        for r in range(layout.ranks)
    ]
    for source in range(layout.ranks):
        ids, mask = expert_ids[source], masks[source]
        for token in range(ids.shape[0]):
            if layout.shared_ranks and token_active(mask, token):
                for j in range(layout.shared_experts):
                    arrived[layout.shared_home(j, source)][0, source].append((token, -1 - j))
            for choice in range(ids.shape[1]):
                expert = int(ids[token, choice])
                if expert < layout.experts and active(mask, token, choice):
                    rank, local = layout.home(expert)
                    arrived[rank][local, source].append((token, choice))
    return arrived


@dataclasses.dataclass
class Dispatched:
    order: list  # (source, token, choice) of each received row
    expand_x: (
        torch.Tensor
    )  # (A, H), zeros past the received rows; numbers before rounding where quantised
    scales: torch.Tensor | None
    expand_idx: torch.Tensor  # int32 (bs * K)
    token_nums: torch.Tensor  # int64
    recv_counts: torch.Tensor  # int32 (ranks * experts)
    expand_scales: torch.Tensor  # float64 (A)


def expand_index(ids, mask) -> torch.Tensor:
    """How many earlier pairs of this rank chose the same expert; version 1's expand_idx."""
    flat, seen, found = ids.flatten().tolist(), {}, []
    for pair, expert in enumerate(flat):
        found.append(seen.get(expert, 0))
        if active(mask, pair // ids.shape[1], pair % ids.shape[1]):
            seen[expert] = seen.get(expert, 0) + 1
    return torch.tensor(found, dtype=torch.int32)


def dispatch(
    layout: Layout, x, expert_ids, *, version=2, masks=None, expert_scales=None, scales=None,
    quant_mode=0, nums_type=1, global_bs=0,
) -> list[Dispatched]:  # fmt: skip
    """quant_mode 0: x's rows; 1: x * scales; 2: x * scales of the expert, by row maximum / 127."""
    choices, hidden = expert_ids[0].shape[1], x[0].shape[1]
    total = global_bs or max(each.shape[0] for each in x) * layout.ranks
    found = []
    for rank, arrived in enumerate(sent(layout, expert_ids, masks)):
        experts = layout.experts_of(rank)
        order, counts, running = [], [], []
        for i in range(experts):
            for source in range(layout.ranks):
                order += [(source, token, choice) for token, choice in arrived[i, source]]
                running.append(len(order))
            counts.append(sum(len(arrived[i, source]) for source in range(layout.ranks)))
        size = layout.rows(total, choices, rank, version)
        rows = torch.zeros(size, hidden, dtype=torch.float64)
        weights = torch.zeros(size, dtype=torch.float64)
        dynamic = torch.zeros(size, dtype=torch.float64) if quant_mode == 2 else None
        for at, (source, token, choice) in enumerate(order):
            row = x[source][token].double()
            if quant_mode == 1:
                row = row * scales[0].double()
            elif quant_mode == 2:
                if scales is not None:
                    # The rows of scales are the shared experts', then the others'.
                    number = (
                        -1 - choice
                        if choice < 0
                        else int(expert_ids[source][token, choice])
                        + (layout.shared_experts if layout.shared_ranks else 0)
                    )
                    row = row * scales[0][number].double()
                dynamic[at] = row.abs().max() / 127
                row = row / dynamic[at] if dynamic[at] > 0 else row * 0
            rows[at] = row
            if expert_scales is not None:
                weights[at] = 1.0 if choice < 0 else expert_scales[source][token, choice].double()
        nums = torch.tensor(counts, dtype=torch.int64)
        found.append(
            Dispatched(
                order, rows, dynamic,
                expand_index(expert_ids[rank], None if masks is None else masks[rank]),
                nums if nums_type == 1 else nums.cumsum(0),
                torch.tensor(running, dtype=torch.int32), weights,
            )
        )  # fmt: skip
    return found


def combine(
    layout: Layout, dispatched: list[Dispatched], outputs, expert_ids, expert_scales, *, masks=None,
    shared_x=None, ori_x=None, alpha_1=None, alpha_2=None, const_v=None,
) -> list[torch.Tensor]:  # fmt: skip
    """(bs, H) of each rank: the experts' rows `outputs`, weighted and summed for each token."""
    hidden = outputs[0].shape[1]
    found = [torch.zeros(ids.shape[0], hidden, dtype=torch.float64) for ids in expert_ids]
    for rank, plan in enumerate(dispatched):
        for at, (source, token, choice) in enumerate(plan.order):
            weight = 1.0 if choice < 0 else expert_scales[source][token, choice].double()
            found[source][token] += weight * outputs[rank][at].double()
    for rank, ids in enumerate(expert_ids):
        mask = None if masks is None else masks[rank]
        for token in range(ids.shape[0]):
            if not token_active(mask, token):
                continue
            for choice in range(ids.shape[1]):
                beyond = int(ids[token, choice]) - layout.experts - layout.zero
                if beyond < 0 or not active(mask, token, choice):
                    continue  # an expert of a rank, or one that gives 0
                weight, row = (
                    expert_scales[rank][token, choice].double(),
                    ori_x[rank][token].double(),
                )
                if beyond >= layout.copy:
                    c = beyond - layout.copy
                    row = alpha_1[c].double() * row + alpha_2[c].double() * const_v[c].double()
                found[rank][token] += weight * row
            if shared_x is not None:
                found[rank][token] += shared_x[rank][token].double()
    return found


def add_rms_norm(combined, residual, gamma, eps):
    """(y, rstd, x) of each rank: x = combined + residual (bs, 1, H), y its RMS norm times gamma."""
    found = []
    for rows, rest in zip(combined, residual, strict=True):
        x = rows[:, None, :] + rest.double()
        rstd = ((x**2).mean(-1, keepdim=True) + eps) ** -0.5
        found.append((x * rstd * gamma.double(), rstd, x))
    return found
