# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
for device in ("npu:1", "npu:0"):
    x = torch.arange(1000.0, device=device)
    a, b = torch._lazy_clone(x), torch._lazy_clone(x)
    a.add_(1)
    b.erfinv_()  # rung 4
    x.mul_(2)
    base = torch.arange(1000.0)
    assert a.device == x.device == torch.device(device)
    assert torch.equal(a.cpu(), base + 1) and torch.equal(x.cpu(), base * 2)
    assert torch.equal(b.cpu().nan_to_num(3.), base.erfinv().nan_to_num(3.))
    assert torch.npu.memory_allocated("npu:0") == 0 or device == "npu:0"
    assert a.untyped_storage().device == torch.device(device)
    c = torch._lazy_clone(a)
    c.resize_(2000)
    assert torch.equal(c[:1000].cpu(), base + 1) and torch.equal(a.cpu(), base + 1)
