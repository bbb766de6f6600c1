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

# Variables that change how the product works.
OURS = (
    "NPU_",
    "TORCH_NPU_",
    "OP_",
    "OPENNPU_",
    "ASCEND_",
    "DITORCH_",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
)


@pytest.fixture(autouse=True)
def environment_stays_as_it_was():
    """Code under test may set variables for the torch that it imports; a later test's children must not see them."""
    before = dict(os.environ)
    yield
    left = {n for n in {*before, *os.environ} if before.get(n) != os.environ.get(n)}
    for name in left - {"PYTEST_CURRENT_TEST"}:
        if name in before:
            os.environ[name] = before[name]
        else:
            del os.environ[name]
    assert not [n for n in sorted(left) if n.startswith(OURS)], "this test changes the environment"


def pytest_collection_modifyitems(items) -> None:
    """Minutes first: at the end there is only small work left to share between the workers."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
