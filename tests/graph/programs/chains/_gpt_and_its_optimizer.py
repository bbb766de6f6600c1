# SPDX-License-Identifier: Apache-2.0
class Block(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.inner, self.outer = torch.nn.Linear(width, 32), torch.nn.Linear(32, width)
        self.drop = torch.nn.Dropout(0.1)
    def forward(self, x):
        inner = self.inner(self.norm(x))
        return x + self.drop(self.outer(inner * torch.sigmoid(1.702 * inner)))

def make(backend):
    model = torch.nn.Sequential(Block(), Block()).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True, capturable=True)
    loss = torch.compile(lambda x: model(x).square().mean(), backend=backend)
    update = torch.compile(optimizer.step, backend=backend)
    x = torch.randn(7, 16).npu()
    def step():
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        update()
        state = [v for p in model.parameters() for v in optimizer.state[p].values()]
        return [value, *model.parameters(), *state]
    return step
compare(make, programs=3, fused=10)
