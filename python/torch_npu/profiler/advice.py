# SPDX-License-Identifier: Apache-2.0
"""What costs time in a profile, where in the program, and what to do about it."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

from . import folder
from .trace import HostCall, Op, Trace, Work

FILE = "advice.txt"
# Thresholds, stated in the report.
TINY_US = 10.0  # a kernel below this costs more to launch than to run, on most devices
GAP_US = 100.0  # the device stood still for longer than launching a kernel explains
WORTH = 0.01  # of the recorded time: less is not reported
_READS = ("aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::nonzero")


@dataclass
class Finding:
    kind: str  # sync, tiny, copy, gap
    what: str  # the operator or the call
    line: str  # "/home/me/train.py:31 in step"; empty where it is not known
    count: int
    us: float  # at stake
    share: float  # of the recorded time

    @property
    def place(self) -> str:
        return self.line.rpartition(os.sep)[2]


@dataclass
class Advice:
    recorded_us: float
    busy_us: float
    devices: int
    steps: int
    has_lines: bool
    findings: list[Finding]

    def as_dict(self) -> dict:
        return {
            **asdict(self),
            "thresholds": {"tiny_us": TINY_US, "gap_us": GAP_US, "worth": WORTH},
        }


def of(trace: Trace, worth: float = WORTH) -> Advice:
    """What costs at least that share of the recorded time."""
    from .tables import length, merged

    times = [(op.start, op.end) for op in trace.ops] + [(w.start, w.end) for w in trace.work]
    recorded = max((end for _, end in times), default=0) - min((b for b, _ in times), default=0)
    busy = sum(
        length(merged([(w.start, w.end) for w in trace.work if w.device == device]))
        for device in trace.devices
    )
    groups: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for part in (_waits, _copies, _tiny, _gaps):
        for kind, what, line, us in part(trace):
            groups[kind, what, line].append(us)
    findings = [
        Finding(kind, what, line, len(us), sum(us), sum(us) / recorded)
        for (kind, what, line), us in groups.items()
        if recorded > 0 and sum(us) >= worth * recorded
    ]
    findings.sort(key=lambda f: -f.us)
    lines = any(call.line for call in trace.host_calls if not call.is_wait)
    return Advice(recorded, busy, len(trace.devices), len(trace.steps), lines, findings)


def _op_of(trace: Trace, call: HostCall | None) -> Op | None:
    return trace.ops_by_id.get(call.op) if call is not None else None


def _is_read(op: Op | None) -> bool:
    while op is not None:
        if op.name in _READS:
            return True
        op = op.parent
    return False


def _waits(trace: Trace):
    """The host stood still until the device had finished: synchronize(), and values it read."""
    seen = set()
    for call in trace.host_calls:
        op = _op_of(trace, call)
        if call.is_wait:
            if op is None:
                yield "sync", call.name, trace.line_of(call), call.duration
            elif _is_read(op) and id(op.outermost) not in seen:
                seen.add(id(op.outermost))
                yield "sync", op.outermost.name, trace.line_of(call), op.outermost.duration
            elif not _is_read(op) and not _copies_in(op):
                yield "sync", op.outermost.name, trace.line_of(call), call.duration
        elif _is_read(op) and id(op.outermost) not in seen:
            seen.add(id(op.outermost))
            yield "sync", op.outermost.name, trace.line_of(call), op.outermost.duration


def _between_host_and_device(work: Work) -> bool:
    return work.sort == "gpu_memcpy" and work.name.endswith(("HtoD", "DtoH"))


def _copies_in(op: Op) -> bool:
    return any(_between_host_and_device(work) for work in op.work)


def _copies(trace: Trace):
    """Bytes between host and device, with the time the host spent on them."""
    seen = set()
    for work in trace.work:
        launch = trace.launches.get(work.args.get("correlation"))
        op = _op_of(trace, launch)
        if not _between_host_and_device(work) or _is_read(op):
            continue
        outer = op.outermost if op is not None else None
        what = f"{work.name.rpartition(' ')[2]} {outer.name if outer is not None else ''}".strip()
        host = 0.0
        if outer is not None and id(outer) not in seen:
            seen.add(id(outer))
            host = outer.duration
        yield "copy", what, trace.line_of(launch), max(work.duration, host)


def _tiny(trace: Trace):
    """Kernels that run shorter than TINY_US: the host's time to launch each."""
    seen = set()
    for work in trace.work:
        if work.sort != "kernel" or work.is_collective or work.duration >= TINY_US:
            continue
        launch = trace.launches.get(work.args.get("correlation"))
        op = _op_of(trace, launch)
        while op is not None and op.parent is not None and not op.parent.work:
            if op.parent.name.startswith("autograd::engine"):
                break
            op = op.parent
        if launch is None or id(op) in seen:
            continue
        span: HostCall | Op = launch
        if op is not None:
            seen.add(id(op))
            span = op
        inside = span.start <= work.start and work.end <= span.end
        spent = span.duration - (work.duration if inside else 0.0)
        yield (
            "tiny",
            op.name if op is not None else work.name,
            trace.line_of(launch),
            max(0.0, spent),
        )


def _gaps(trace: Trace):
    """Times when a device stood still, by the launch that ended them."""
    for device in trace.devices:
        free_since = None
        for work in trace.work:
            if work.device != device:
                continue
            if free_since is not None and work.start - free_since >= GAP_US:
                launch = trace.launches.get(work.args.get("correlation"))
                op = _op_of(trace, launch)
                what = op.outermost.name if op is not None else work.name
                yield "gap", what, trace.line_of(launch), work.start - free_since
            free_since = max(work.end, free_since or work.end)


# ---- as text ----

_TEXTS = {
    "en": {
        "head": "{recorded} recorded, {devices} device(s), {steps} step(s), device busy {busy:.0%}",
        "none": "No synchronisation, tiny kernel, copy or host gap costs {worth:.0%} of the time.",
        "columns": ("at stake", "share", "calls", "what", "where"),
        "unknown": "(unknown)",
        "no_lines": "Lines of launches are recorded with with_stack=True.",
        "todo": "What to do",
        "sync": "sync",
        "tiny": "tiny kernels",
        "copy": "copy",
        "gap": "host gap",
        "do_sync": "sync: the host waits for the device. Keep values on the device, add losses up there, and read them every few steps.",
        "do_tiny": "tiny kernels: launching costs more than computing. Use torch.compile, torch.npu.NPUGraph, foreach or fused optimizers, or larger batches.",
        "do_copy": "copy: bytes go between host and device. Create tensors on the device, move them before the loop, or use pin_memory() and non_blocking=True.",
        "do_gap": "host gap: the device waits for the host before this line. Use DataLoader workers, do less Python per step, or replay an NPUGraph.",
        "limits": "Thresholds: a tiny kernel runs less than {tiny:.0f} us, a gap lasts {gap:.0f} us or more, a row costs {worth:.0%} of the time or more. Rows overlap: one second can be in a gap and in the copy that caused it.",
    },
    "zh": {
        "head": "记录了 {recorded}，{devices} 个设备，{steps} 步，设备忙 {busy:.0%}",
        "none": "没有任何同步、小 kernel、拷贝或主机空隙占用 {worth:.0%} 以上的时间。",
        "columns": ("可省时间", "占比", "次数", "内容", "位置"),
        "unknown": "（未知）",
        "no_lines": "with_stack=True 时记录每次下发所在的行。",
        "todo": "怎么办",
        "sync": "同步",
        "tiny": "小 kernel",
        "copy": "拷贝",
        "gap": "主机空隙",
        "do_sync": "同步：主机等待设备。把数值留在设备上，在设备上累加 loss，每隔若干步再读取。",
        "do_tiny": "小 kernel：下发的开销大于计算。使用 torch.compile、torch.npu.NPUGraph、foreach 或 fused 优化器，或增大 batch。",
        "do_copy": "拷贝：数据在主机与设备之间搬运。直接在设备上创建张量，在循环之前搬运，或使用 pin_memory() 和 non_blocking=True。",
        "do_gap": "主机空隙：在这一行之前设备等待主机。使用 DataLoader 的 worker，减少每步的 Python 代码，或重放 NPUGraph。",
        "limits": "阈值：小 kernel 的运行时间小于 {tiny:.0f} us，空隙不短于 {gap:.0f} us，每行至少占 {worth:.0%} 的时间。各行会重叠：同一段时间可以既在空隙里，又在造成它的拷贝里。",
    },
}  # fmt: skip
KINDS = ("sync", "tiny", "copy", "gap")


def time_text(us: float) -> str:
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    return f"{us / 1e3:.2f} ms" if us >= 1e3 else f"{us:.1f} us"


def lines(advice: Advice, language: str = "en", width: int = 100, most: int = 20) -> list[str]:
    """The report, in lines of at most `width` columns."""
    from opennpu.words import folded, padded

    say = _TEXTS[language]
    busy = advice.busy_us / advice.recorded_us / max(1, advice.devices) if advice.recorded_us else 0
    head = say["head"].format(
        recorded=time_text(advice.recorded_us),
        devices=advice.devices,
        steps=advice.steps,
        busy=busy,
    )
    out = [*folded(head, width), ""]
    if not advice.findings:
        out += folded(say["none"].format(worth=WORTH), width)
    rows = [say["columns"]] if advice.findings else []
    rows += [
        (
            time_text(f.us),
            f"{f.share:.0%}",
            str(f.count),
            f"{say[f.kind]}: {f.what}",
            f.place or say["unknown"],
        )
        for f in advice.findings[:most]
    ]
    out += padded(rows, "rrrll", width)
    if advice.findings and not advice.has_lines:
        out += ["", *folded(say["no_lines"], width)]
    if advice.findings:
        out += ["", f"{say['todo']}:"]
        there = {f.kind for f in advice.findings}
        for kind in KINDS:
            if kind in there:
                out += folded(f"  {say['do_' + kind]}", width, "    ")
        limits = say["limits"].format(tiny=TINY_US, gap=GAP_US, worth=WORTH)
        out += ["", *folded(limits, width)]
    return out


def write(profile: Path, trace: Trace) -> None:
    """advice.txt of one profile."""
    from opennpu import words

    text = "\n".join(lines(of(trace), words.language())) + "\n"
    with folder.whole(profile / folder.OUTPUT / FILE) as file:
        file.write_text(text, encoding="utf-8")
