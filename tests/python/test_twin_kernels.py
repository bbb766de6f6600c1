# SPDX-License-Identifier: Apache-2.0
"""Rung 4 without boxing, by the kernel of the twin's dispatch key.

A GPU's twin calls the kernels of the CUDA key. Here the same code calls those of the CPU key, so it
has to give the bits of the CPU functions that the generated calls name.
"""

import json
import subprocess
import sys

import pytest
from programs import program

SCRIPT = program(__file__, "_script")


@pytest.mark.parametrize("part", range(2))
def test_kernels_of_the_key_have_the_bits_of_the_functions(part):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(part), "2"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["wrong"] == []
    assert said["compared"] > 200
