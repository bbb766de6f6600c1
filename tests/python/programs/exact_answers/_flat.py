# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
from torch_npu import _C

def gradients(image, grid):
    image, grid = image.requires_grad_(), grid.requires_grad_()
    out = torch.grid_sampler_2d(image, grid, 2, 1, False)
    return torch.autograd.grad(out, (image, grid), torch.ones_like(out))

torch.manual_seed(0)
image, grid = torch.randn(2, 3, 5, 20), torch.rand(2, 13, 10, 2) * 4 - 2
wide = gradients(image.double(), grid.double())
here = gradients(image.double().npu(), grid.double().npu())
assert all(g.cpu().equal(w) for g, w in zip(here, wide))
for got, want in zip(gradients(image.npu(), grid.npu()), wide):
    torch.testing.assert_close(got.cpu().double(), want, rtol=1e-4, atol=1e-4)
assert any(row[1] for row in _C._native_calls()["aten::grid_sampler_2d_backward"])
