# SPDX-License-Identifier: Apache-2.0
import sys
import warnings

import torch
from torch import nn

device, fault = sys.argv[1:3]
if device == "npu":
    import torch_npu
warnings.simplefilter("ignore")
library = torch.library.Library("aten", "IMPL")
key = {"cpu": "CPU", "cuda": "CUDA", "npu": "PrivateUse1"}[device]


def wrong(x, *, approximate="none"):
    result = 0.5 * x * (1 + torch.erf(x / 2**0.5))
    if x.dtype == torch.float32:
        result.view(-1)[3] *= 1.01
    return result


if fault in ("gelu", "two"):
    library.impl("gelu", wrong, key)
if fault == "two":
    library.impl("tanh", lambda x: torch.sub(1.02, 2.04 * torch.sigmoid(-2 * x)), key)
torch.manual_seed(3)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)).to(device)
x = torch.randn(5, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
drop = nn.Dropout(0.4 if fault == "dropout" else 0.0)
for _ in range(2):
    optimizer.zero_grad()
    loss = drop(model(x)).tanh().square().mean()
    loss.backward()
    if fault == "dropout":
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    print("loss", loss.item())
if fault == "raise":
    raise RuntimeError("it was to be")
