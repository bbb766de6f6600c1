# SPDX-License-Identifier: Apache-2.0
"""What did not run on the device itself: counts, a table, and what to do about it."""

from torch_npu import _C

__all__ = [
    "fallback_report",
    "fallback_stats",
    "get_fallback",
    "reset_fallback_stats",
    "set_fallback",
]

_POLICIES = ("warn", "silent", "error")


def fallback_stats(native: bool = False) -> list[dict]:
    """One dict per overload that fell back, most time first.

    `native=True` adds what ran on the CPU but counts as the device's own way:
    on the host driver the CPU is the device.
    """
    return [row for row in _C._fallback_rows() if native or not row["native"]]


def reset_fallback_stats() -> None:
    """Counts from zero again; overloads already warned about stay quiet."""
    _C._fallback_reset()


def fallback_report(native: bool = False) -> str:
    """The same as a table to print."""
    rows = fallback_stats(native)
    if not rows:
        return "Nothing fell back to the CPU."
    head = ("operator", "rung", "calls", "bytes", "time", "reason", "first call")
    table = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(head))]
    lines = ["  ".join(_align(c, w, i) for i, (c, w) in enumerate(zip(line, widths))).rstrip()
             for line in table]  # fmt: skip
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cells(row: dict) -> tuple[str, ...]:
    return (
        row["reported"] or row["overload"],
        str(row["rung"]),
        str(row["calls"]),
        _size(row["bytes"]),
        _duration(row["seconds"]),
        row["reason"],
        row["call_site"] or "-",
    )


def _align(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if 1 <= column <= 4 else cell.ljust(width)


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.4g} {unit}"
        count /= 1024
    return f"{count:.4g} GiB"


def _duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} us"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def set_fallback(policy: str) -> None:
    """What happens at a fallback: "warn" (once per overload), "silent" or "error"."""
    if policy not in _POLICIES:
        raise ValueError(f"npu: set_fallback: expected one of {_POLICIES}, but got {policy!r}.")
    _C._set_fallback_policy(_POLICIES.index(policy))


def get_fallback() -> str:
    return _POLICIES[_C._fallback_policy()]
