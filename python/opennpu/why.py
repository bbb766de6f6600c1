# SPDX-License-Identifier: Apache-2.0
"""`opennpu ops --why my::op`: why an operator is, or is not, run by a pack's function on npu."""

from __future__ import annotations

import difflib

KEYS = (
    "PrivateUse1",
    "AutogradPrivateUse1",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
)


def _packs_with(name: str, packs) -> list[tuple]:
    """(pack, row of its manifest) of every pack that lists the operator or one of its overloads."""
    return [
        (pack, row)
        for pack in packs
        for row in pack.manifest.get("operators", ())
        if row["overload"] == name or row["overload"].partition(".")[0] == name
    ]


def _overloads(name: str) -> list[str]:
    import torch

    namespace, _, bare = name.partition("::")
    getattr(getattr(torch.ops, namespace), bare.partition(".")[0], None)  # defines it
    names = torch._C._dispatch_get_all_op_names()
    return [n for n in names if n == name or n.partition(".")[0] == name]


def _describe_pack(pack, row) -> list[str]:
    lines = [
        f"  pack: {pack.name}, {pack.state}",
        f"  yaml: {pack.yaml}:{row['line']}, {row['section']}",
    ]
    if pack.state != "loaded":
        lines.append(
            "  so: no operator of this pack is registered. Correct the fault named after 'pack' and build it again"
        )
    return lines


def _registered(overload: str, pack, row: dict | None) -> list[str]:
    import torch
    from torch_npu import _C, _python_packs

    ours = {(name, key): where for pack in _C._packs() for name, key, where in pack["rows"] if key}
    if pack is not None and pack.state == "loaded" and pack.manifest.get("kind") != "cpp":
        key = _python_packs.KEYS[row["section"]]
        ours[overload, key] = f"{pack.yaml.name}:{row['line']}, {pack.manifest['kind']}"
    keys = [k for k in KEYS if torch._C._dispatch_has_kernel_for_dispatch_key(overload, k)]
    lines = []
    for key in keys:
        where = ours.get((overload, key))
        lines.append(f"  kernel: {key}, {f'of the pack ({where})' if where else 'built in'}")
    if not keys:
        lines.append("  kernel: none for npu: PyTorch's CPU kernel is used, where there is one")
    if row and not any(key in (overload, k) for key, k in ours if key == overload) and keys:
        lines.append("  so: another registration came after the pack's")
    return lines


def _profile(overload: str) -> list[str]:
    from torch_npu import _C

    rows = [r for r in _C._explain_operator(overload) if r["overload"] == overload]
    if not rows:
        return []
    row = rows[0]
    said = "would fall back to the CPU there" if row["falls_back"] else "runs it natively"
    return [f"  profile: {row['profile']}: {said}"]


def explain(name: str) -> tuple[int, list[str]]:
    """Exit code and lines."""
    import torch
    import torch_npu  # noqa: F401
    from torch_npu import _packs

    name = name if "::" in name else f"npu::{name}"
    listed = _packs_with(name, _packs.ALL)
    overloads = _overloads(name)
    if not overloads and not listed:
        known = {n.partition(".")[0] for n in torch._C._dispatch_get_all_op_names()}
        known |= {
            r["overload"].partition(".")[0] for p in _packs.ALL for r in p.manifest["operators"]
        }
        near = difflib.get_close_matches(name, sorted(known), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        packs = ", ".join(f"{p.name} ({p.state})" for p in _packs.ALL) or _packs.why_none()
        return 2, [
            f"{name}: no pack lists it and PyTorch has no such operator{hint}",
            f"  packs: {packs}",
        ]
    lines = []
    for overload in overloads or sorted({row["overload"] for _, row in listed}):
        lines.append(overload)
        rows = [(p, r) for p, r in listed if r["overload"] == overload]
        for pack, row in rows:
            lines += _describe_pack(pack, row)
        if not rows:
            lines.append("  pack: none lists it")
        if overload in overloads:
            lines += _registered(overload, *(rows[0] if rows else (None, None)))
            # The imitated chip says nothing about an operator that only the pack has.
            if not any(row["section"].startswith("custom") for _, row in rows):
                lines += _profile(overload)
    lines.append(
        "was it called? one line a call: SLOG_PRINT_TO_STDOUT=1 ASCEND_GLOBAL_LOG_LEVEL=0;"
    )
    lines.append(
        "  how often: torch_npu._C._pack_calls(); what left the device: torch.npu.fallback_report()"
    )
    return 0, lines
