# SPDX-License-Identifier: Apache-2.0
"""`opennpu top`: npu devices and the processes that use them, live in the terminal."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
import time

from opennpu import top_pages, words

_BAR = 20
_WORDS = {
    "en": {
        "idle": "no process of yours uses an npu device (NPU_TOP=0 hides one)",
        "busy": "busy  ",
        "memory": "memory",
        "amount": "{used} of {all}, tensors {tensors}",
        "silent": "(does not answer)",
    },
    "zh": {
        "idle": "你没有正在使用 npu 设备的进程（NPU_TOP=0 会隐藏进程）",
        "busy": "忙碌",
        "memory": "内存",
        "amount": "{all} 中的 {used}，张量 {tensors}",
        "silent": "（没有应答）",
    },
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="print one look and end")
    parser.add_argument("--json", action="store_true", help="one look as JSON")
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=1.0,
        metavar="SECONDS",
        help="between two looks (default 1)",
    )


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds from 0.1 to 3600")
    return value


def size(n: int) -> str:
    """Bytes for people: 1.5 GiB."""
    value, unit = float(n), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def devices_of(processes: list[top_pages.Process]) -> list[dict]:
    """Each device once, with what all processes say of it.

    Two processes of one driver mean the same device by the same number. Processes that compute at the
    same time are busy at the same time, so their shares do not add up beyond all of it.
    """
    found: dict[tuple[str, int], dict] = {}
    for process in processes:
        for device in process.devices:
            key = (process.driver, device.number)
            row = found.setdefault(
                key,
                {
                    "device": device.number,
                    "driver": process.driver,
                    "name": device.name,
                    "busy": 0.0,
                    "total": device.total,
                    "allocated": 0,
                    "reserved": 0,
                    "processes": 0,
                },
            )
            row["busy"] = min(1.0, row["busy"] + device.busy)
            row["allocated"] += device.allocated
            row["reserved"] += device.reserved
            row["processes"] += 1
    return [found[key] for key in sorted(found)]


def as_json(processes: list[top_pages.Process]) -> str:
    return json.dumps(
        {
            "devices": devices_of(processes),
            "processes": [dataclasses.asdict(p) for p in processes],
        },
        indent=2,
    )


def _bar(share: float) -> str:
    full = round(share * _BAR)
    return "[" + "#" * full + "." * (_BAR - full) + f"] {share:4.0%}"


def lines(processes: list[top_pages.Process], width: int = 100) -> list[str]:
    say = _WORDS[words.language()]
    if not processes:
        return [say["idle"]]
    out = []
    for row in devices_of(processes):
        used = row["reserved"] / row["total"] if row["total"] else 0.0
        out.append(f"npu:{row['device']}  {row['name']}  ({row['driver']})")
        amount = say["amount"].format(
            used=size(row["reserved"]), all=size(row["total"]), tensors=size(row["allocated"])
        )
        out.append(f"  {say['busy']}  {_bar(row['busy'])}")
        out.append(f"  {say['memory']}  {_bar(used)}  {amount}")
    out += [
        "",
        f"{'PID':>9}  {'USER':<10} {'NPU':>3} {'BUSY':>5}  {'MEMORY':>10}  {'PEAK':>10}  COMMAND",
    ]
    for process in processes:
        if not process.answers:
            out.append(
                f"{process.pid:>9}  {process.user:<10} {'?':>3} {say['silent']}  {process.command}"
            )
        for device in process.devices if process.answers else ():
            out.append(
                f"{process.pid:>9}  {process.user:<10} {device.number:>3} {device.busy:>5.0%}  "
                f"{size(device.reserved):>10}  {size(device.peak):>10}  {process.command}"
            )
        if process.answers and not process.devices:
            out.append(
                f"{process.pid:>9}  {process.user:<10} {'-':>3} {'':>5}  {'':>10}  {'':>10}  {process.command}"
            )
    return [line[:width].rstrip() for line in out]


def _live(interval: float) -> int:
    home, clear = "\x1b[H", "\x1b[J"
    sys.stdout.write("\x1b[2J\x1b[?25l")  # whole screen, no cursor
    try:
        while True:
            began = time.monotonic()
            columns, rows = shutil.get_terminal_size()
            shown = lines(top_pages.look(), columns)
            shown = [f"opennpu top   {time.strftime('%H:%M:%S')}   ctrl-c ends it", "", *shown]
            text = "\x1b[K\r\n".join(shown[: rows - 1])
            sys.stdout.write(home + text + clear)
            sys.stdout.flush()
            time.sleep(max(0.0, interval - (time.monotonic() - began)))
    except KeyboardInterrupt:
        return 0
    finally:
        sys.stdout.write("\x1b[?25h\r\n")
        sys.stdout.flush()


def run(options: argparse.Namespace) -> int:
    if options.json:
        print(as_json(top_pages.look()))
        return 0
    if options.once or not sys.stdout.isatty():
        columns = shutil.get_terminal_size((160, 24)).columns
        print("\n".join(lines(top_pages.look(), columns)))
        return 0
    return _live(options.interval)
