# SPDX-License-Identifier: Apache-2.0
"""Tools run on plain cpu tensors and on an accelerator; no test leaves a tap behind."""

import pytest
from op_tools import _C
from optools_devices import ACCELERATORS, DEVICES

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
