# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
import torch.nn.functional as F
from torch_npu import _C

torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    cpu = [torch.randn(5, 16).to(dtype), torch.randn(16), torch.randn(16)]
    results = []
    for device in ("cpu", "npu"):
        x, w, b = (t.detach().to(device).requires_grad_() for t in cpu)
        y = F.layer_norm(x, (16,), w, b)
        y.float().square().sum().backward()
        results.append([y.detach(), x.grad, w.grad, b.grad])
    for want, got in zip(*results):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got.cpu(), want, rtol=2e-2, atol=2e-2)
calls = _C._native_calls()
for name in ("aten::native_layer_norm", "aten::native_layer_norm_backward"):
    assert calls[name][0][1] == 2, calls[name]
assert "layer_norm" not in torch.npu.fallback_report()
