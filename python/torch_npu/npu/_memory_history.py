# SPDX-License-Identifier: Apache-2.0
"""The allocator's trace of events, in the form torch.cuda's memory viewer reads."""

import pickle
from typing import Any

from torch_npu import _C

from ._device import _lazy_init

_CONTEXTS = (None, "state", "alloc", "all")


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = 2**63 - 1,
    device=None,
    clear_history: bool = False,
    **_ignored,
) -> None:
    """Starts noting allocations ("state": live ones, "all": also what happened); None stops."""
    if isinstance(enabled, bool):  # the old form of the call
        enabled = "all" if enabled else None
    if enabled not in (None, "state", "all"):
        raise ValueError(f"enabled: expected None, 'state' or 'all', but got {enabled!r}")
    if context not in _CONTEXTS:
        raise ValueError(f"context: expected None, 'state', 'alloc' or 'all', but got {context!r}")
    _lazy_init()
    kept = {None: 0, "state": 1, "all": max_entries}[enabled]
    _C._record_memory_history(kept, _CONTEXTS.index(context), clear_history)


def _snapshot(device=None) -> dict[str, Any]:
    """Segments and blocks now and, while recording, what happened to them."""
    _lazy_init()
    return _C._memory_snapshot()


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)
