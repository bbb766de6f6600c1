# SPDX-License-Identifier: Apache-2.0
"""Graph mode's tests share what tests of PyTorch features have."""

import gc
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

import torch_npu  # noqa: F401


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


@pytest.fixture
def counts():
    """Sums over the graphs compiled in a test."""
    from torchair import _compiler

    gc.collect()
    _compiler.runners.clear()

    def total(name):
        return sum(run.replayer.counts()[name] for run in list(_compiler.runners))

    return total


# The fixture that runs a script in a process of its own.
from importlib import util as _util  # noqa: E402

_spec = _util.spec_from_file_location(
    "python_conftest", Path(__file__).resolve().parent.parent / "python" / "conftest.py"
)
_module = _util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
run_python = _module.run_python
