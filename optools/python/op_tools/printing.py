# SPDX-License-Identifier: Apache-2.0
"""The short lines tools print."""

from __future__ import annotations


def describe_tensors(entries: list[dict]) -> str:
    shown = [
        "opaque" if e["opaque"] else f"{e['dtype']}{list(e['shape'])}".replace(" ", "")
        for e in entries[:6]
    ]
    more = [f"... {len(entries)} in all"] if len(entries) > 6 else []
    return "(" + ", ".join(shown + more) + ")"


def print_counted(tool: str, did: str, counts: list[tuple[str, str, int]]) -> None:
    acted = sorted((-count, op) for op, why, count in counts if not why)
    for count, op in acted:
        print(f"{tool}: {op:<44} {-count} calls {did}")
    passed: dict[str, int] = {}
    for _, why, count in counts:
        if why:
            passed[why] = passed.get(why, 0) + count
    for why, count in sorted(passed.items(), key=lambda item: -item[1]):
        print(f"{tool}: {count} calls let pass: {why}")
    print(f"{tool}: {len(acted)} operators, {-sum(c for c, _ in acted)} calls {did}")
