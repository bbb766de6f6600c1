# SPDX-License-Identifier: Apache-2.0
"""Lists of groups of rows: cumulative ends (type 0) or counts (type 1), in a tensor."""

from itertools import pairwise

import torch

from torch_npu.ops._check import known, require


def values_of(x: torch.Tensor) -> list | None:
    """A tensor's values; None if they cannot be read."""
    return x.tolist() if known(x) else None


def ends_of(group_list, kind: int, rows: int, name: str, argument: str = "group_list"):
    """The cumulative ends (int64) of groups of rows; values are checked where they can be read."""
    require(kind in (0, 1), f"{name}: {argument}'s type is {kind}; allowed: 0, 1.", "VALUE")
    require(
        group_list.dtype in (torch.int64, torch.int32),
        f"{name}: {argument} is {group_list.dtype}; allowed: int64, int32.",
        "TYPE",
    )
    require(
        group_list.dim() == 1 and group_list.numel() > 0,
        f"{name}: {argument} has shape {list(group_list.shape)}; allowed: [groups], at least one.",
    )
    ends = group_list.to(torch.int64)
    ends = ends.cumsum(0) if kind == 1 else ends
    values = values_of(ends)
    if values is not None:
        what = "it holds ends, which must not fall" if kind == 0 else "no count may be negative"
        require(
            all(a <= b for a, b in pairwise([0, *values])),
            f"{name}: {argument} is {group_list.tolist()}; {what}.",
            "VALUE",
        )
        require(
            not values or values[-1] <= rows,
            f"{name}: {argument} is {group_list.tolist()}, which ends at {values[-1] if values else 0}, "
            f"but there are {rows} rows.",
            "VALUE",
        )
    return ends


def group_of_rows(ends: torch.Tensor, rows: int) -> torch.Tensor:
    """The group that each row is in; the number of groups past the last one."""
    row = torch.arange(rows, device=ends.device)
    return (row[:, None] >= ends[None, :]).sum(1)


def spans(ends: torch.Tensor) -> list[tuple[int, int]]:
    """(start, end) of each group, on the host."""
    return list(pairwise([0, *ends.tolist()]))


def group_places(ends: torch.Tensor, rows: int, block: int, unit: int):
    """(place, inside): the block of each row, where each group of rows is blocked on its own.

    `ends` are cumulative. The group g that starts at row r has its blocks from (r // unit + g) * (unit //
    block) on; there are (rows // unit + groups) * (unit // block) places. `inside` is False past the
    last group.
    """
    groups, per = ends.numel(), unit // block
    row = torch.arange(rows, device=ends.device)
    limits = torch.cat([ends.new_zeros(1), ends]).to(torch.int64).clamp(0, rows)
    group = group_of_rows(limits[1:], rows)
    start = limits[group]
    place = (start // unit + group) * per + (row - start) // block
    return place.clamp(0, max((rows // unit + groups) * per - 1, 0)), group < groups
