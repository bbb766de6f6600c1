# SPDX-License-Identifier: Apache-2.0
"""What every folder of tests needs before PyTorch computes anything."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from amx import avoid_broken_amx

avoid_broken_amx()


def share_the_cores() -> None:
    """Workers with a thread per core each would mostly wait for one another; two find the races."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        cores = len(os.sched_getaffinity(0))
        os.environ.setdefault("OMP_NUM_THREADS", str(max(2, cores // workers)))


share_the_cores()


def pytest_collection_modifyitems(items) -> None:
    """Minutes first: at the end there is only small work left to share between the workers."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
