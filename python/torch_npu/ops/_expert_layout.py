# SPDX-License-Identifier: Apache-2.0
"""Where experts live: which rank and which place on it serves each pair of a token and a choice.

The first shared ranks serve the shared experts. Expert e lives on rank shared + e // local, with `local`
experts on each of the other ranks. Experts from the last one on (zero, copy, const) live nowhere.
"""

import dataclasses

import torch

from torch_npu.ops._check import refuse_given, require
from torch_npu.ops._exchange import per_rank


@dataclasses.dataclass
class Layout:
    name: str
    ranks: int
    rank: int
    experts: int
    shared_ranks: int = 0
    shared: int = 0

    @property
    def local(self) -> int:
        """Experts on each rank that is not shared."""
        return self.experts // (self.ranks - self.shared_ranks)

    @property
    def here(self) -> int:
        """Experts on this rank."""
        return 1 if self.rank < self.shared_ranks else self.local

    def rows(self, tokens: int, choices: int, global_bs: int, version: int) -> int:
        """The size of the buffer for received rows."""
        total = global_bs or tokens * self.ranks
        if self.rank >= self.shared_ranks:
            return total * min(self.local, choices)
        per = self.shared_ranks // self.shared
        if version == 1:
            return total // per
        return total // self.ranks * -(-self.ranks // per)


_HOMELESS = ("zero_expert_num", "copy_expert_num", "const_expert_num")


def numbered(layout: Layout, options) -> int:
    """Experts that expert_ids may name, also those that live nowhere."""
    return layout.experts + sum(options.get(k, 0) for k in _HOMELESS)


def layout_of(name, expert_ids, ranks, rank, experts, options) -> Layout:
    """The layout of a call, checked; nothing is sent before."""
    refuse_given(name, **{k: options.get(k) for k in ("elastic_info", "performance_info")})
    require(
        0 <= rank < ranks,
        f"{name}: ep_rank_id should be in [0, ep_world_size), but got ep_world_size: {ranks}, ep_rank_id: {rank}. ",
    )
    shared_ranks, shared = (
        options.get("shared_expert_rank_num", 0),
        options.get("shared_expert_num", 1),
    )
    require(
        0 <= shared_ranks < ranks,
        f"{name}: shared_expert_rank_num should be in [0, ep_world_size), but got shared_expert_rank_num: "
        f"{shared_ranks}, ep_world_size: {ranks}.",
    )
    require(
        (shared_ranks == 0 and shared in (0, 1)) or (shared > 0 and shared_ranks > 0 and shared_ranks % shared == 0),
        f"{name}: shared_expert_num is {shared} and shared_expert_rank_num {shared_ranks}; allowed: 1 and 0, 0 and 0, or "
        "ranks that are a positive multiple of the experts.",
    )  # fmt: skip
    others = ranks - shared_ranks
    require(
        experts > 0 and experts % others == 0,
        f"{name}: moe_expert_num is {experts}; it must be a positive multiple of the {others} ranks that are not shared.",
    )
    require(
        options.get("tp_world_size", 0) in (0, 1),
        f"{name}: tp_world_size is {options.get('tp_world_size')}; allowed: 0, 1.",
        "VALUE",
    )
    require(
        options.get("expert_shard_type", 0) == 0,
        f"{name}: expert_shard_type is {options.get('expert_shard_type')}; allowed: 0.",
        "VALUE",
    )
    require(
        expert_ids.dim() == 2 and expert_ids.dtype in (torch.int32, torch.int64),
        f"{name}: expert_ids has shape {list(expert_ids.shape)} and dtype {expert_ids.dtype}; allowed: (bs, K) of int32 or "
        "int64.",
    )
    mask, (tokens, choices) = options.get("x_active_mask"), expert_ids.shape
    require(
        mask is None or mask.shape in ((tokens,), (tokens, choices)),
        f"{name}: x_active_mask has shape {None if mask is None else list(mask.shape)}; allowed: {[tokens]}, "
        f"{[tokens, choices]}.",
    )
    return Layout(name, ranks, rank, experts, shared_ranks, shared if shared_ranks else 0)


class Messages:
    """The rows that this rank sends: `token` and `choice` of each, by rank, expert and token.

    The choice of shared expert j is K + j.
    """

    def __init__(self, layout: Layout, expert_ids, mask, limit: int):
        tokens, choices = expert_ids.shape
        device = expert_ids.device
        ids = expert_ids.flatten().to(torch.int64)
        pair = torch.arange(tokens * choices, device=device)
        taking = torch.ones_like(ids, dtype=torch.bool)
        if mask is not None:
            taking = (
                (mask if mask.dim() == 2 else mask[:, None].expand(tokens, choices))
                .bool()
                .flatten()
            )
        require(
            bool((((ids >= 0) & (ids < limit)) | ~taking).all()),
            f"{layout.name}: expert_ids holds {expert_ids.flatten().tolist()}; allowed: 0 to {limit - 1}.",
            "VALUE",
        )
        self.taking = taking.view(tokens, choices)
        sent = taking & (ids < layout.experts)
        target = (layout.shared_ranks + ids // layout.local) * layout.local + ids % layout.local
        target, token, choice = (
            target[sent],
            pair[sent] // max(choices, 1),
            pair[sent] % max(choices, 1),
        )
        if layout.shared:
            per = layout.shared_ranks // layout.shared
            every = self.taking.any(1).nonzero().squeeze(1)
            for j in range(layout.shared):
                home = (j * per + layout.rank % per) * layout.local
                target = torch.cat((target, torch.full_like(every, home)))
                token = torch.cat((token, every))
                choice = torch.cat((choice, torch.full_like(every, choices + j)))
        target, order = torch.sort(target, stable=True)
        self.target, self.token, self.choice = target, token[order], choice[order]
        counts = torch.bincount(target, minlength=layout.ranks * layout.local)
        self.counts: list[int] = (
            counts.tolist()
        )  # rank-major; a shared rank uses the first place alone
        self.per_rank = per_rank(self.counts, layout.local)
