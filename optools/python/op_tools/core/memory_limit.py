# SPDX-License-Identifier: Apache-2.0
"""How much memory this process can still take. A system that promises more than it has (overcommit)
gives out any amount and kills who uses it: sizes that come from a file are checked before."""

from __future__ import annotations

import contextlib
import resource
import sys

# An operator on a tensor of a file, and the verdict on it: arguments and results in float64 too.
TIMES = 4
_GROUPS = (  # of what a container may take, and takes
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


def available() -> int:
    """Bytes; sys.maxsize if unknown."""
    left = [sys.maxsize]
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/meminfo", encoding="ascii") as file:
            said = {name: rest for name, _, rest in (line.partition(":") for line in file)}
        left.append(int(said.get("MemAvailable", "").split()[0]) * 1024)
    for most, used in _GROUPS:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            left.append(max(_number(most) - _number(used), 0))
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        with contextlib.suppress(OSError, ValueError):
            with open("/proc/self/statm", encoding="ascii") as file:
                taken = int(file.read().split()[0]) * resource.getpagesize()
            left.append(max(soft - taken, 0))
    return min(left)


def is_too_much(nbytes: int) -> bool:
    """To compute with."""
    return nbytes > 1 << 20 and nbytes * TIMES > available()


def _number(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return int(file.read())
