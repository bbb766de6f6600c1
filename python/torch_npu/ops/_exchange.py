# SPDX-License-Identifier: Apache-2.0
"""Rows sent between the ranks of the process group that a string names.

The name comes from a group's backend: group._get_backend(torch.device("npu")).get_hccl_comm_name(rank).
"""

import torch
import torch.distributed as dist

from torch_npu.ops._check import require


def group_of(name: str, hcom: str, world_size=None, argument: str = "hcom"):
    from torch.distributed.distributed_c10d import _resolve_process_group

    require(world_size != 0, f"{name}: world_size should not be 0.", "VALUE")
    try:
        group = _resolve_process_group(hcom)
    except (RuntimeError, KeyError, ValueError):
        group = None
    require(
        group is not None,
        f"{name}: {argument} is {hcom!r}, which names no process group here. Give "
        "group._get_backend(torch.device('npu')).get_hccl_comm_name(rank).",
    )
    require(
        world_size in (None, group.size()),
        f"{name}: world_size is {world_size}; the group of {argument} has {group.size()} ranks.",
    )
    return group


def as_bytes(x: torch.Tensor) -> torch.Tensor:
    """Eight-bit formats travel as bytes: a collective moves them and computes nothing."""
    return x.view(torch.uint8) if x.element_size() == 1 else x


def gather_rows(x: torch.Tensor, group) -> torch.Tensor:
    """The rows of all ranks, in the order of ranks."""
    out = x.new_empty(x.size(0) * group.size(), *x.shape[1:])
    dist.all_gather_into_tensor(as_bytes(out), as_bytes(x.contiguous()), group=group)
    return out


def scatter_sum(x: torch.Tensor, group) -> torch.Tensor:
    """This rank's part of the rows, summed over ranks."""
    out = x.new_empty(x.size(0) // group.size(), *x.shape[1:])
    dist.reduce_scatter_tensor(out, x.contiguous(), group=group)
    return out


def send_rows(x: torch.Tensor, send: list[int], receive: list[int], group) -> torch.Tensor:
    """`send[d]` rows go to rank d, in order; the rows of rank 0 come first."""
    out = x.new_empty(sum(receive), *x.shape[1:])
    dist.all_to_all_single(
        as_bytes(out), as_bytes(x.contiguous()), list(receive), list(send), group=group
    )
    return out


def swap_rows(x: torch.Tensor, group) -> torch.Tensor:
    """Chunk r of the rows goes to rank r; the chunk of rank 0 comes first."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    dist.all_to_all_single(as_bytes(out), as_bytes(x.contiguous()), group=group)
    return out


def swap_chunks(x: torch.Tensor, group) -> torch.Tensor:
    """Chunk r of the rows goes to rank r; received chunks stand side by side: (rows / R, R · columns)."""
    ranks = group.size()
    received = swap_rows(x, group).unflatten(0, (ranks, x.size(0) // ranks))
    return received.transpose(0, 1).flatten(1, 2)


# Counts of rows are rank-major: element rank * e + expert, with e experts on each rank.


def per_rank(counts, experts: int) -> list[int]:
    return [sum(counts[i : i + experts]) for i in range(0, len(counts), experts)]


def _regrouped(x, sizes, order):
    parts = as_bytes(x).split(sizes)
    return torch.cat([parts[i] for i in order]).view(x.dtype) if parts else x


def to_experts(x, counts, experts: int):
    """Rows that stand rank by rank, and there expert by expert, ordered by expert, then rank."""
    ranks = len(counts) // experts
    return _regrouped(x, counts, [s * experts + i for i in range(experts) for s in range(ranks)])


def to_ranks(x, counts, experts: int):
    """The way back of `to_experts`."""
    ranks = len(counts) // experts
    sizes = [n for i in range(experts) for n in counts[i::experts]]
    return _regrouped(x, sizes, [i * ranks + r for r in range(ranks) for i in range(experts)])


def check_counts(name: str, send: list[int], receive: list[int], group, device) -> None:
    """Every rank learns all counts, so that all refuse those that do not fit, and none waits for rows."""
    mine = torch.tensor([*send, *receive], dtype=torch.int64, device=device)
    sizes = gather_rows(mine.new_tensor([mine.numel()]), group).tolist()
    ranks = group.size()
    require(
        all(n == mine.numel() for n in sizes),
        f"{name}: the ranks give different numbers of counts, {[n // 2 for n in sizes]}; they must be the same.",
    )
    rows = gather_rows(mine, group).view(ranks, 2, ranks, -1).tolist()
    for source, (sent, _) in enumerate(rows):
        for target, (_, received) in enumerate(rows):
            require(
                sent[target] == received[source],
                f"{name}: rank {source} sends {sent[target]} rows to the experts of rank {target}, which expects "
                f"{received[source]}; the ranks' counts must agree.",
                "VALUE",
            )
