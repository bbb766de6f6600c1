# SPDX-License-Identifier: Apache-2.0
import copy, torch, torch_npu, torchair
from torch import nn
from torch.utils.checkpoint import checkpoint
from torchair import _compiler

def total(name):
    return sum(run.replayer.counts()[name] for run in list(_compiler.runners))

def compiled(function):
    return torch.compile(function, backend=torchair.get_npu_backend())

def same(a, b):
    assert len(a) == len(b)
    for i, (x, y) in enumerate(zip(a, b)):
        assert torch.equal(x.cpu(), y.cpu()), i

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(16, 48), nn.Linear(48, 16)
        self.drop = nn.Dropout(0.25)
    def forward(self, x):
        return x + self.drop(self.outer(self.drop(torch.relu(self.inner(x)))))

def trained(run, model, between=lambda turn: None):
    out = []
    for turn in range(4):
        between(turn)
        y = run(torch.full((6, 16), 0.5 + turn, device="npu"))
        y.square().sum().backward()
        out += [y.detach(), *(p.grad.clone() for p in model.parameters())]
        model.zero_grad()
        with torch.no_grad():
            for p in model.parameters():
                p.mul_(0.99)
    return out
