# SPDX-License-Identifier: Apache-2.0
"""What tests of the adapters of networks run in child processes: `same` compares forward and gradients with
PyTorch's CPU, `ran` asks the counters which rung did it. The fixture `script` runs code after this preamble."""

import pytest
from programs import program

PREAMBLE = program(__file__, "_preamble")


@pytest.fixture
def script(run_python):
    def run(code, **variables):
        return run_python(PREAMBLE + code, **{"NPU_HOST_KERNELS": "all", **variables})

    return run
