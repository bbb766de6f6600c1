# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from ranks import ranks


@pytest.fixture(scope="session")
def four():
    """Four ranks on two devices, for every test that leaves its group usable."""
    with ranks(4, "cpu:gloo,npu:hccl", NPU_HOST_DEVICES="2") as made:
        yield made
