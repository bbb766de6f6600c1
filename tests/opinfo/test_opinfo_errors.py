# SPDX-License-Identifier: Apache-2.0
"""Wrong inputs of every operator, with the default kernels and with all of them."""

import json
import os
from pathlib import Path

import interpreter
import pytest


@pytest.mark.parametrize("kernels", ["fast", "all"])
def test_wrong_inputs_are_refused_as_on_cpu(kernels):
    done = interpreter.run(
        [Path(__file__).with_name("errors.py")],
        env={**os.environ, "NPU_HOST_KERNELS": kernels, "NPU_FALLBACK": "silent"},
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["samples"] > 600 and result["usable"]
    assert result["disagreements"] == []
