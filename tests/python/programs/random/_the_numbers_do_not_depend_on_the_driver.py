# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
torch.npu.manual_seed(11)
x = [torch.rand(7, device="npu"), torch.randn(5, dtype=torch.float64, device="npu"),
     torch.randperm(9, device="npu"), torch.randint(1000, (4,), device="npu"),
     torch.multinomial(torch.ones(6, device="npu"), 4),
     *torch.native_dropout(torch.ones(8, device="npu"), 0.5, True),
     torch.empty(3, 8, device="npu")[:, ::2].exponential_(),
     torch.poisson(torch.full((5,), 3.0, device="npu"))]
print([t.tolist() for t in x], torch.npu.get_rng_state().tolist())
