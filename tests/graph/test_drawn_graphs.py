# SPDX-License-Identifier: Apache-2.0
"""Graphs drawn at random, with passes and graphs of the device on: the bits of eager mode, and close to the
same graph on the CPU in float64. On host and on a device whose memory host code cannot read."""

import os

import pytest
from faulty import discrete_environment
from programs import program

EXAMPLES = int(os.environ.get("OPENNPU_FUZZ_EXAMPLES", "25"))

CODE = program(__file__, "_code")


@pytest.mark.parametrize("driver", ["host", "discrete"])
def test_drawn_graphs_are_eager_mode_and_close_to_float64(run_python, driver):
    variables = {"NPU_HOST_KERNELS": "all", "NPU_PROFILE": "none"}
    if driver == "discrete":
        variables |= discrete_environment()
        variables |= {"NPU_DISCRETE_CAPTURE": "1", "NPU_DISCRETE_DELAY_US": "20"}
    run_python(f"EXAMPLES = {EXAMPLES}\n" + CODE, timeout=600, **variables)
