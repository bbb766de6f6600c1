# SPDX-License-Identifier: Apache-2.0
"""Passes ask what the driver can do, not what memory it has: copies, reuse and tiles on a device whose
memory host code cannot read, with the numbers of the same graphs without passes."""

import pytest
from faulty import discrete_environment
from programs import program

CODE = program(__file__, "_code")


@pytest.mark.parametrize("driver", ["host", "discrete"])
def test_an_optimizer_has_the_same_bits_with_each_pass(run_python, driver):
    variables = {"NPU_HOST_KERNELS": "all", "NPU_PROFILE": "none"}
    if driver == "discrete":
        variables |= discrete_environment() | {"NPU_DISCRETE_DELAY_US": "20"}
    run_python(CODE, **variables)
