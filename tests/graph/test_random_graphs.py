# SPDX-License-Identifier: Apache-2.0
"""Random numbers inside recordings: every replay draws the numbers that eager mode would draw next,
on host and on a device whose memory host code cannot read, frame by frame and as graphs of the device."""

import pytest
from faulty import discrete_environment
from programs import names, program, variables

HEAD = program(__file__, "_head")
MODES = {
    "host": {"NPU_HOST_KERNELS": "all"},
    "discrete": {"NPU_DISCRETE_DELAY_US": "20"},
    "capture": {"NPU_DISCRETE_DELAY_US": "20", "NPU_DISCRETE_CAPTURE": "1"},
}


@pytest.fixture(params=MODES)
def run_random(run_python, request):
    mode = {"NPU_PROFILE": "none", **MODES[request.param]}
    if request.param != "host":
        mode |= discrete_environment()
    return lambda code, **more: run_python(HEAD + code, **(mode | more))


@pytest.mark.parametrize("name", names(__file__))
def test_program(run_random, name):
    run_random(program(__file__, name), **variables(__file__, name))
