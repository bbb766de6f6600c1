# SPDX-License-Identifier: Apache-2.0
"""memory_summary's table: the layout is torch.cuda's, so that eyes and scripts find their way."""

from typing import Any

_BYTE_ROWS = [
    ("Allocated memory", "allocated_bytes"),
    ("Active memory", "active_bytes"),
    ("Requested memory", "requested_bytes"),
    ("NPU reserved memory", "reserved_bytes"),
    ("Non-releasable memory", "inactive_split_bytes"),
]
_COUNT_ROWS = [
    ("Allocations", "allocation"),
    ("Active allocs", "active"),
    ("NPU reserved segments", "segment"),
    ("Non-releasable allocs", "inactive_split"),
]
_OVERSIZE_ROWS = [
    ("Oversize allocations", "oversize_allocations"),
    ("Oversize NPU segments", "oversize_segments"),
]
_POOLS = [("all", None), ("large_pool", "from large pool"), ("small_pool", "from small pool")]


def _size(count: int) -> str:
    """Seven characters and a unit, moving up when five digits are not enough."""
    units = ["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"]
    unit = 0
    while count >= 100 * 1024 and unit + 1 < len(units):
        count //= 1024
        unit += 1
    return f"{count:6d} {units[unit]} "


def _count(number: int) -> str:
    for unit in (" ", "K", "M"):
        if number < 1000 * 1000:
            return f"{number:7d} {unit} "
        number //= 1000
    return f"{number:7d} G "


def _line(name: str, cells: list[str]) -> str:
    return "|" + "|".join([f" {name:<22}", *(f"{cell:>12}" for cell in cells)]) + "|"


def _cells(stats: dict[str, Any], prefix: str, form) -> list[str]:
    names = ("current", "peak", "allocated", "freed")
    return [form(stats.get(f"{prefix}.{name}", 0)) for name in names]


def _rows(stats: dict[str, Any], rows, form, pools):
    for title, key in rows:
        yield "-"
        for pool, label in pools:
            prefix = f"{key}.{pool}" if pool else key
            yield _line((label and f"     {label}") or title, _cells(stats, prefix, form))


def format_summary(device: int, stats: dict[str, Any], abbreviated: bool) -> str:
    pools = _POOLS[:1] if abbreviated else _POOLS
    ooms = f"NPU OOMs: {stats.get('num_ooms', 0)}"
    retries = f"npuMalloc retries: {stats.get('num_alloc_retries', 0)}"
    lines = [
        "=",
        f"|{f'PyTorch NPU memory summary, device ID {device}':^75}|",
        "-",
        f"|{ooms:^36}|{retries:^38}|",
        "=",
        "|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |",
        *_rows(stats, _BYTE_ROWS, _size, pools),
        *_rows(stats, _COUNT_ROWS, _count, pools),
        *_rows(stats, _OVERSIZE_ROWS, _count, [(None, None)]),
        "=",
    ]
    return "\n".join(f"|{line * 75}|" if len(line) == 1 else line for line in lines) + "\n"
