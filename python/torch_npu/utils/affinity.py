# SPDX-License-Identifier: Apache-2.0
"""Which cores the calling thread, and threads it starts later, may run on."""

from torch_npu import _C

__all__ = ["reset_thread_affinity", "set_thread_affinity"]


def _is_range(value) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(isinstance(core, int) and not isinstance(core, bool) for core in value)
        and 0 <= value[0] <= value[1]
    )


def _set_thread_affinity(core_range=None) -> None:
    """[first, last], a list of such ranges, or None: as the process was started."""
    if core_range is None:
        _C._npu_set_thread_affinity(-1, -1)
        return
    ranges = [core_range] if _is_range(core_range) else core_range
    if not isinstance(ranges, (list, tuple)) or not ranges or not all(map(_is_range, ranges)):
        raise ValueError(
            f"Invalid core range {core_range!r}: expected [first, last] with 0 <= first <= last, "
            "or a list of such pairs."
        )
    cores = {core for first, last in ranges for core in range(first, last + 1)}
    _C._npu_set_thread_affinity(sorted(cores))


def _reset_thread_affinity() -> None:
    """The cores the process was started with."""
    _C._npu_reset_thread_affinity()


set_thread_affinity = _set_thread_affinity
reset_thread_affinity = _reset_thread_affinity
