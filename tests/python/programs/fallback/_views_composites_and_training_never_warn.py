# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                    nn.Linear(8 * 36, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4)).to("npu")
optimizer = torch.optim.AdamW(net.parameters())
for _ in range(2):
    x = torch.randn(2, 3, 8, 8).to("npu")
    loss = nn.functional.cross_entropy(net(x), torch.tensor([0, 1], device="npu"))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
y = x.permute(0, 2, 3, 1).contiguous().view(2, -1)[:, ::2].unsqueeze(1).expand(2, 3, -1)
y.chunk(2, 1); y.unfold(2, 4, 2); torch.split(y, 1); y.t if y.dim() == 2 else y.mT
print(y.float().mean().item())
