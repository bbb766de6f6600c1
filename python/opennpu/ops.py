# SPDX-License-Identifier: Apache-2.0
"""`opennpu ops`: which operators reach the driver, by which kind, and on which rung of the ladder."""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Overloads that the YAML lists and what was seen of them, made when the package was built.
LIST = "data/operators.json"
# Ascend's own operators, and those of them that are part of torch_npu itself, not of its operator library.
CUSTOM = "data/custom_operators.json"
IN_TREE = {"_npu_format_cast", "copy_memory_", "empty_with_swapped_memory"}
DTYPES = (
    "bool u8 i8 i16 i32 i64 u16 u32 u64 f16 bf16 f32 f64 c32 c64 c128 "
    "f8_e4m3fn f8_e5m2 f8_e4m3fnuz f8_e5m2fnuz f8_e8m0fnu f4_e2m1fn_x2"
).split()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pattern", nargs="?", help="part of a name (softmax), or a pattern (add*)")
    parser.add_argument("--driver", metavar="NAME", help="default: NPU_DRIVER, else host")
    parser.add_argument("--profile", metavar="NAME", help="also say what that device runs natively")
    parser.add_argument(
        "--custom", action="store_true", help="Ascend's own operators (npu_*) instead"
    )
    parser.add_argument(
        "--why", metavar="OPERATOR", help="which pack and kernel an operator gets, and why"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def matches(overload: str, pattern: str | None) -> bool:
    if not pattern:
        return True
    bare = overload.partition("::")[2]
    if any(c in pattern for c in "*?["):
        return fnmatch.fnmatchcase(overload, pattern) or fnmatch.fnmatchcase(bare, pattern)
    return pattern in overload


def rung_of(row: dict, runs: dict[str, list[str]], host_can_read: bool) -> int:
    """1 when the driver has every kind the overload calls, 3 when it has what it can be composed of;
    else where PyTorch's CPU kernel runs. Which calls need mending (2) shows only when they run."""
    for rung, calls in ((1, row["calls"]), (3, row.get("parts"))):
        if calls and all(call in runs for call in calls):
            return rung
    return 4 if host_can_read else 5


def dtypes_of(row: dict, runs: dict[str, list[str]], seen: bool) -> list[str]:
    """The rungs that were seen to run, else the driver's answer for all kinds it calls."""
    if seen and "seen" in row:
        found = {d for dtypes in row["seen"].values() for d in dtypes}
    else:
        found = set(DTYPES).intersection(*(runs.get(call, ()) for call in row["calls"]))
    return sorted(found, key=DTYPES.index)


def judged(overload: str) -> str:
    """How the profile's device runs it."""
    import torch_npu

    rows = torch_npu._C._explain_operator(overload)
    falls = any(row["falls_back"] for row in rows if row["overload"] == overload)
    return "falls back" if falls else "native"


def collect(options: argparse.Namespace) -> dict:
    import torch
    import torch_npu

    info = torch_npu._C._driver_info()
    if info.get("failure"):
        raise RuntimeError(info["failure"])
    runs: dict[str, list[str]] = {}
    for kind in torch_npu._C._driver_kinds():
        runs[f"{kind['kind']}.{kind['code']}"] = kind["dtypes"]
        # A kind named without a code stands for all of them; codes share their dtypes widely.
        runs.setdefault(kind["kind"], kind["dtypes"])
    count = torch.npu.device_count()
    readable = count > 0 and torch_npu._C._device_properties(0)["host_can_read"]
    file = Path(torch_npu.__file__).parent / LIST
    listed = json.loads(file.read_text(encoding="utf-8"))["operators"]
    seen = info["name"] == "host"
    rows = []
    for row in listed:
        if not matches(row["overload"], options.pattern):
            continue
        rung = row["rungs"][0] if seen and "rungs" in row else rung_of(row, runs, readable)
        shown = {**row, "rung": rung, "dtypes": dtypes_of(row, runs, seen) if rung < 4 else []}
        if not seen:
            shown.pop("seen", None)
            shown.pop("rungs", None)
        if options.profile:
            shown["profile"] = judged(row["overload"])
        rows.append(shown)
    rows = with_packs(rows, options.pattern)
    return {
        "driver": info["name"],
        "profile": options.profile or "",
        "cpu_rung": 4 if readable else 5,
        "seen": sum("seen" in row for row in rows),
        "operators": rows,
    }


def with_packs(rows: list[dict], pattern: str | None) -> list[dict]:
    """Operators that packs serve: their functions replace the built-in ones."""
    from torch_npu import _packs

    by_name = {
        row["overload"]: pack.name
        for pack in _packs.ALL
        if pack.state == "loaded"
        for row in pack.manifest["operators"]
    }
    rest = [row for row in rows if row["overload"] not in by_name]
    ours = [
        {"overload": overload, "calls": [f"pack:{name}"], "rung": 1, "dtypes": [], "pack": name}
        for overload, name in by_name.items()
        if matches(overload, pattern)
    ]
    return sorted(rest + ours, key=lambda row: row["overload"])


def show(found: dict) -> None:
    rows = found["operators"]
    width = max((len(row["overload"]) for row in rows), default=8)
    calls = max((len(" ".join(row["calls"])) for row in rows), default=5)
    for row in rows:
        profile = f"  {row['profile']:10}" if "profile" in row else ""
        rungs = ",".join(map(str, row.get("rungs", [row["rung"]])))
        line = f"{row['overload']:{width}}  rung {rungs:5}  {' '.join(row['calls']):{calls}}"
        print(f"{line}{profile}  {' '.join(row['dtypes'])}".rstrip())
    native = sum(row["rung"] < 4 for row in rows)
    print(f"{len(rows)} overloads, {native} on driver {found['driver']}", end="")
    print(f", {found['seen']} seen to run there" if found["seen"] else "")


def custom_operators() -> list[dict]:
    """The rows of ops/npu/*.yaml, as they were installed."""
    import torch_npu

    path = Path(torch_npu.__file__).parent / CUSTOM
    return json.loads(path.read_text(encoding="utf-8"))


def run_custom(options: argparse.Namespace) -> int:
    """The 399 operators of Ascend's operator library.

    Of each: where it is implemented, whether autograd goes through, the dtypes of its tests, the file of its oracle.
    """
    rows = [
        row
        for row in custom_operators()
        if row["namespace"] == "npu"
        and row["name"] not in IN_TREE
        and matches(f"npu::{row['name']}", options.pattern)
    ]
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    for row in rows:
        state = f"torch_npu.ops.{row['module']}" if row["implemented"] else "not implemented"
        state = "refused" if row["refused"] else state
        gradient = "gradient" if row["gradient"] and row["implemented"] else ""
        dtypes = ",".join(row["tested_dtypes"]) or "-"
        oracles = ",".join(Path(file).name for file in row["oracles"]) or "-"
        line = f"{row['name']:56} {state:28} {gradient:8} {dtypes:18} {oracles:24} {row['doc']}"
        print(line.rstrip())
    print(f"{len(rows)} operators, {sum(row['implemented'] for row in rows)} implemented")
    return 0


@contextlib.contextmanager
def asked_device(options: argparse.Namespace) -> Iterator[None]:
    """Variables that torch_npu reads once, when it is imported; the caller's environment is restored."""
    before = dict(os.environ)
    given = {"NPU_DRIVER": options.driver, "NPU_PROFILE": options.profile}
    os.environ.update({variable: value for variable, value in given.items() if value})
    if not options.why:
        # The list is about what the driver can do, not about what the host driver leaves to PyTorch.
        os.environ.setdefault("NPU_HOST_KERNELS", "all")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def run(options: argparse.Namespace) -> int:
    if options.custom:
        return run_custom(options)
    with asked_device(options):
        return run_listed(options)


def run_listed(options: argparse.Namespace) -> int:
    if options.why:
        from opennpu import why

        code, lines = why.explain(options.why)
        print("\n".join(lines), file=sys.stderr if code else sys.stdout)
        return code
    try:
        found = collect(options)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    if not found["operators"]:
        print(f"no operator that reaches a driver matches {options.pattern!r}", file=sys.stderr)
        return 2
    if options.json:
        json.dump(found, sys.stdout, indent=1)
        print()
    else:
        show(found)
    return 0
