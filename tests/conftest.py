# SPDX-License-Identifier: Apache-2.0
"""What every folder of tests needs before PyTorch computes anything."""

import os
import sys
from pathlib import Path

import pytest

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

# readline, which pytest imports, exports both; commands would fold what they print to that width.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
autoload = os.environ.get(AUTOLOAD)


@pytest.fixture(autouse=True)
def children_load_the_plugin_as_before():
    """Code under test may set the variable for the torch that it imports."""
    if autoload is None:
        os.environ.pop(AUTOLOAD, None)
    else:
        os.environ[AUTOLOAD] = autoload


def pytest_collection_modifyitems(items) -> None:
    """Minutes first: at the end there is only small work left to share between the workers."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
