# SPDX-License-Identifier: Apache-2.0
"""Tools run on plain cpu tensors and on an accelerator; no test leaves a tap behind.

Which devices: OP_TOOLS_DEVICE (comma-separated) where it is set, else cpu and cuda where there is
a GPU, else cpu and npu. Not cuda and npu in one process: PyTorch has one accelerator.
"""

import importlib.util
import os
import sys

import pytest
import torch
from op_tools import _C


def _devices():
    asked = os.environ.get("OP_TOOLS_DEVICE", "")
    if asked:
        return [name.strip() for name in asked.split(",")]
    if torch.cuda.is_available() and "torch_npu" not in sys.modules:
        return ["cpu", "cuda"]
    return ["cpu"] + ["npu"] * (importlib.util.find_spec("torch_npu") is not None)


DEVICES = _devices()
ACCELERATORS = [name for name in DEVICES if name != "cpu"]
if "npu" in DEVICES:
    import torch_npu  # noqa: F401


@pytest.fixture(params=DEVICES)
def device(request, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", request.param)
    return request.param


@pytest.fixture(
    params=ACCELERATORS
    or [pytest.param("", marks=pytest.mark.skip(reason="no device but the cpu here"))]
)
def accelerator(request, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", request.param)
    return request.param


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    """Results go to a folder of the test; afterwards nothing runs and no tap is left."""
    monkeypatch.chdir(tmp_path)
    yield
    assert _C.idle()
    assert _C.tap_count() == 0
