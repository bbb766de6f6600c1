# SPDX-License-Identifier: Apache-2.0
"""Tools run on plain cpu tensors and on the npu device; no test leaves a tap behind."""

import pytest
import torch_npu  # noqa: F401
from op_tools import _C


@pytest.fixture(params=["cpu", "npu"])
def device(request, monkeypatch):
    monkeypatch.setenv("OP_TOOLS_DEVICE", request.param)
    return request.param


@pytest.fixture(autouse=True)
def clean(tmp_path, monkeypatch):
    """Results go to a folder of the test; afterwards nothing runs and no tap is left."""
    monkeypatch.chdir(tmp_path)
    yield
    assert _C.idle()
    assert _C.tap_count() == 0
