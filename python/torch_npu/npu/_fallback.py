# SPDX-License-Identifier: Apache-2.0
"""What did not run on the device itself: counts, a table, and what to do about it."""

from torch_npu import _C

__all__ = [
    "fallback_report",
    "fallback_stats",
    "get_fallback",
    "profile_gaps",
    "reset_fallback_stats",
    "set_fallback",
    "unknown_dtypes",
]

_POLICIES = ("warn", "silent", "error")


def fallback_stats(native: bool = False) -> list[dict]:
    """One dict per overload that fell back, most time first.

    `native=True` adds CPU kernels that count as the device's own way:
    on the host driver the CPU is the device.
    """
    return [row for row in _C._fallback_rows() if native or not row["native"]]


def reset_fallback_stats() -> None:
    """Counts from zero again; overloads already warned about stay quiet."""
    _C._fallback_reset()


def profile_gaps() -> list[dict]:
    """Features that were used here and raise on the profile's device."""
    return _C._profile_gaps()


def unknown_dtypes() -> list[dict]:
    """Calls with dtypes of which the tables behind the profile say nothing: operator, dtype, calls, call_site."""
    rows = _C._unknown_dtypes()
    return sorted(rows, key=lambda row: (-row["calls"], row["operator"], row["dtype"]))


def fallback_report(native: bool = False) -> str:
    """The same as a table to print, with the features that the profile's device lacks."""
    rows = fallback_stats(native)
    head = ("operator", "rung", "calls", "bytes", "time", "reason", "first call")
    parts = [
        _table([head, *(_cells(row) for row in rows)], numbers=range(1, 5))
        if rows
        else "Nothing fell back to the CPU."
    ]
    driver = _C._driver_info().get("name", "host")
    if driver != "host":
        parts[0] = f"Fell back on driver {driver}:\n{parts[0]}" if rows else parts[0]
    gaps = profile_gaps()
    if gaps:
        parts.append(f"Not on the profile {_C._profile_name()}: works here, raises there.")
        lines = [(gap["feature"], str(gap["calls"]), gap["call_site"] or "-") for gap in gaps]
        parts.append(_table([("feature", "calls", "first call"), *lines], numbers=[1]))
    unknown = unknown_dtypes()
    if unknown:
        rows, calls = len(unknown), sum(row["calls"] for row in unknown)
        parts.append(
            f"Unknown to the profile {_C._profile_name()}: {rows} dtypes of operators in {calls} calls. "
            "torch.npu.unknown_dtypes() lists them."
        )
    return "\n".join(parts)


def _table(rows: list[tuple[str, ...]], numbers) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _cells(row: dict) -> tuple[str, ...]:
    return (
        row["reported"] or row["overload"],
        str(row["rung"]),
        str(row["calls"]),
        _size(row["bytes"]),
        _duration(row["seconds"]),
        _reason(row),
        row["call_site"] or "-",
    )


def _reason(row: dict) -> str:
    wide = row.get("wide_calls", 0)
    return f"{row['reason']}; {wide} in a wider dtype" if wide else row["reason"]


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
