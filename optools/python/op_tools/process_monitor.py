# SPDX-License-Identifier: Apache-2.0
"""What a running process uses: time, processor, memory, device memory.

    python -m op_tools.process_monitor --pid N [--interval 1.0]

Prints a table per interval and appends to a CSV file; ends when the process does.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
import time

if __package__ in (None, ""):  # python op_tools/process_monitor.py
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]

from prettytable import PrettyTable

from op_tools.core import __version__

FOLDER = os.path.join("op_tools_results", "process_monitor_result")
# The vendor's command says whose device it is; names as ditorch's files have them.
VENDORS = {"npu-smi": "ascend", "cnmon": "camb"}
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Process:
    """A process by /proc, where psutil is not needed."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._last = (time.monotonic(), self._fields()[0])

    def _fields(self) -> tuple[float, float]:
        """(processor seconds so far, when it began, in seconds since the machine did)."""
        with open(f"/proc/{self.pid}/stat", encoding="utf-8") as file:
            fields = file.read().rpartition(")")[2].split()
        if fields[0] == "Z":
            raise ProcessLookupError(self.pid)
        return (int(fields[11]) + int(fields[12])) / _TICKS, int(fields[19]) / _TICKS

    def sample(self) -> dict[str, object]:
        used, began = self._fields()
        with open("/proc/uptime", encoding="utf-8") as file:
            running = float(file.read().split()[0]) - began
        now = time.monotonic()
        before, used_before = self._last
        self._last = (now, used)
        with open(f"/proc/{self.pid}/statm", encoding="utf-8") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        share = 100 * (used - used_before) / max(now - before, 1e-3)
        return {
            "pid": self.pid,
            "running_time_s": f"{running:.1f}",
            "cpu_percent": f"{share:.1f}",
            "rss_mb": f"{resident / 2**20:.1f}",
        }


def device_memory(pid: int) -> dict[str, object]:
    """Of the process, where the vendor's command tells it; always the same columns."""
    unknown = {"device_memory_mb": "-"}
    if shutil.which("nvidia-smi") is None:
        return unknown
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        text = subprocess.run(query, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return unknown
    rows = (line.split(",") for line in text.splitlines() if line.count(",") == 1)
    used = [float(mb) for p, mb in rows if p.strip() == str(pid) and mb.strip().isdigit()]
    return {"device_memory_mb": sum(used)} if used else unknown


def file_name(pid: int) -> str:
    vendor = next((name for command, name in VENDORS.items() if shutil.which(command)), "")
    stamp = time.strftime("%Y-%m-%d-%H-%M-%S")
    label = os.environ.get("label", "")  # noqa: SIM112
    return os.path.join(FOLDER, f"process_monitor_result_{vendor}_pid{pid}_{label}_{stamp}.csv")


def _append(path: str, rows: list[dict]) -> None:
    is_new = not os.path.exists(path)
    with open(path, "a", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, fieldnames=list(rows[0]))
        if is_new:
            out.writeheader()
        out.writerows(rows)


def _keep_rows() -> int:
    value = os.environ.get("OP_TOOLS_MAX_CACHE_SIZE", "1")
    if not value.isdigit() or int(value) < 1:
        raise ValueError(f"OP_TOOLS_MAX_CACHE_SIZE={value!r}: expected a number above 0")
    return int(value)


def monitor(pid: int, interval: float = 1.0) -> str:
    """Until the process ends; returns the file's path."""
    path = file_name(pid)
    os.makedirs(FOLDER, exist_ok=True)
    keep, kept = _keep_rows(), []
    process = Process(pid)
    try:
        while True:
            time.sleep(interval)
            row = {"time": time.strftime("%H:%M:%S"), **process.sample(), **device_memory(pid)}
            kept.append(row)
            table = PrettyTable(["name", "value"])
            table.add_rows(list(row.items()))
            print(table, flush=True)
            if len(kept) >= keep:
                _append(path, kept)
                kept = []
    except (FileNotFoundError, ProcessLookupError):
        print(f"process {pid} has ended")
    finally:
        if kept:
            _append(path, kept)
    return path


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="process_monitor", description="What a process uses.")
    parser.add_argument("--version", action="version", version=f"op_tools {__version__}")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--interval", type=float, default=1.0, help="seconds (1.0)")
    flags = parser.parse_args(arguments)
    if flags.interval <= 0:
        parser.error("--interval: expected more than 0 seconds")
    try:
        path = monitor(flags.pid, flags.interval)
    except (FileNotFoundError, ProcessLookupError):
        print(f"process_monitor: no process {flags.pid}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    print(f"process monitor result saved to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
