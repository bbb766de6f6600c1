# SPDX-License-Identifier: Apache-2.0
"""More elements than 32 bits count."""

import os

import pytest
from programs import program

CODE = program(__file__, "_code")


def free_bytes():
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


FULL = os.environ.get("OPENNPU_TEST_FULL") == "1"


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["fast", "all"] if FULL else ["fast"])
def test_more_than_two_to_the_31_elements(kernels, run_python):
    if free_bytes() < 16 << 30:
        pytest.skip("needs 16 GiB of free memory")
    run_python(CODE, timeout=900, NPU_HOST_KERNELS=kernels)
