# SPDX-License-Identifier: Apache-2.0
import sys, time, torch, op_tools
from op_tools import _C
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
tool = op_tools.OpCapture()
tool.start()
print(tool.folder, flush=True)
for step in range(10_000):
    model(torch.randn(32, 64)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, flush=True)
