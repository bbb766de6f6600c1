# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = [torch.ones(300).npu(), torch.ones(()).npu(), torch.ones(40, 50).npu()]
y = [t.clone() for t in x]
torch._foreach_add_(x, y, alpha=2)
torch._foreach_lerp_(x, y, 0.1)
torch._foreach_div_(x, [1.0, 2.0, 3.0])
torch._foreach_mul_(x, torch.tensor(0.5).npu())
torch._foreach_sqrt_(x)
torch._foreach_addcdiv_(x, y, y, 0.5)
torch._foreach_copy_(x, y)
torch._foreach_zero_(x)
