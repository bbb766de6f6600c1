# SPDX-License-Identifier: Apache-2.0
import sys
import torch
device = sys.argv[1]
if device == "npu":
    import torch_npu
model = torch.nn.Linear(2, 2).to(device)
with torch.no_grad():
    model.weight.fill_(1.0); model.bias.zero_()
x = torch.ones(3, 2, device=device)
