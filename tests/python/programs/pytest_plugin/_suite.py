# SPDX-License-Identifier: Apache-2.0
import pytest, torch

def test_native(npu_device):
    assert torch.ones(2, device=npu_device).add(1).sum().item() == 4

def test_falls(npu_device):
    x = torch.ones(2, device=npu_device)
    torch.fmax(x, x)
    torch.fmax(x, x)

@pytest.mark.npu_allow_fallback("aten::fmax")
def test_allowed(npu_device):
    x = torch.ones(2, device=npu_device)
    torch.fmax(x, x)

def test_raises(npu_device):
    x = torch.ones(2, device=npu_device)
    torch.fmin(x, x)
    raise ValueError("of its own")
