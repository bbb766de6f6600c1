# SPDX-License-Identifier: Apache-2.0
"""communication.json: what each collective of a profile moved, and how long it waited for the other ranks."""

from __future__ import annotations

from collections import defaultdict

from .trace import COLLECTIVE, Trace, Work

TOTAL = "Total Op Info"
_MB = 1e6
# Ascend's ways between chips. Ranks of one machine copy through memory: SDMA.
_WAYS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
_HERE = "SDMA"
_P2P = ("send", "recv")
_NAMES = {
    "all_reduce": "hcom_allReduce",
    "all_reduce_coalesced": "hcom_allReduce",
    "all_gather": "hcom_allGather",
    "all_gather_into_tensor": "hcom_allGather",
    "reduce_scatter": "hcom_reduceScatter",
    "reduce_scatter_tensor": "hcom_reduceScatter",
    "all_to_all": "hcom_alltoAll",
    "all_to_all_single": "hcom_alltoAllV",
    "send": "hcom_send",
    "recv": "hcom_receive",
}


def _plain(work: Work) -> str:
    return work.name.removeprefix(COLLECTIVE)


def ascend_name(work: Work) -> str:
    plain = _plain(work)
    return _NAMES.get(plain, f"hcom_{plain}")


def _times(works: list[Work]) -> dict:
    """Of one call, or of all together (which begin nowhere)."""
    elapsed = sum(w.duration for w in works) / 1e3
    waited = sum(float(w.args.get("waited (ns)", 0)) for w in works) / 1e6
    moved = max(0.0, elapsed - waited)
    share = waited / elapsed if elapsed > 0 else 0.0
    return {
        "Start Timestamp(us)": works[0].start if len(works) == 1 else 0,
        "Elapse Time(ms)": elapsed,
        "Transit Time(ms)": moved,
        "Wait Time(ms)": waited,
        "Synchronization Time(ms)": waited,
        "Idle Time(ms)": 0.0,
        "Wait Time Ratio": share,
        "Synchronization Time Ratio": share,
    }


def _bandwidth(works: list[Work]) -> dict:
    empty = {
        "Transit Size(MB)": 0, "Transit Time(ms)": 0, "Bandwidth(GB/s)": 0,
        "Large Packet Ratio": 0, "Size Distribution": {},
    }  # fmt: skip
    all_ways = {way: dict(empty) for way in _WAYS}
    sizes: dict[str, list] = {}
    size = moved = 0.0
    for work in works:
        mine, took = int(work.args.get("bytes", 0)) / _MB, _times([work])["Transit Time(ms)"]
        size += mine
        moved += took
        seen = sizes.setdefault(f"{mine:.6f}", [0, 0.0])
        seen[0] += 1
        seen[1] += took
    all_ways[_HERE] = {
        "Transit Size(MB)": size,
        "Transit Time(ms)": moved,
        "Bandwidth(GB/s)": size / moved if moved > 0 else 0,  # MB in a ms
        "Large Packet Ratio": 0,
        "Size Distribution": sizes,
    }
    return all_ways


def _described(works: list[Work]) -> dict:
    return {
        "Communication Time Info": _times(works),
        "Communication Bandwidth Info": _bandwidth(works),
    }


def content(trace: Trace) -> dict:
    """{step: {p2p and collective: {call: …, "Total Op Info": …}}}; empty without collectives."""
    steps: dict[str, list[Work]] = defaultdict(list)
    for work in trace.work:
        if work.is_collective:
            step = trace.step_of(work) if trace.steps else None
            steps[f"step{step.number}" if step is not None else "step"].append(work)
    found: dict[str, dict] = {}
    for name, works in steps.items():
        sorts = {"p2p": [], "collective": []}
        for work in works:
            sorts["p2p" if _plain(work) in _P2P else "collective"].append(work)
        found[name] = {sort: _calls(of_sort) for sort, of_sort in sorts.items()}
    return found


def _calls(works: list[Work]) -> dict:
    counts: dict[str, int] = defaultdict(int)
    calls = {}
    for work in works:
        name = ascend_name(work)
        calls[f"{name}__{counts[name]}"] = _described([work])
        counts[name] += 1
    if works:
        calls[TOTAL] = _described(works)
    return calls
