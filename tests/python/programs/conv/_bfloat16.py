# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
import torch.nn.functional as F

def run(device):
    g = torch.Generator().manual_seed(0)
    parts = [torch.randn(s, generator=g).bfloat16() for s in ((2, 4, 8, 9), (6, 4, 3, 3), (6,))]
    x, w, b = (p.to(device).requires_grad_() for p in parts)
    y = F.conv2d(x, w, b, padding=1)
    return [t.detach().cpu() for t in (y, *torch.autograd.grad(y.square().sum(), (x, w, b)))]

assert all(a.equal(b) for a, b in zip(run("npu"), run("cpu"), strict=True))
