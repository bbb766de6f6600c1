# SPDX-License-Identifier: Apache-2.0
"""GPT, LSTM and convolution train as compiled models on a device whose memory host code cannot read, with
passes and graphs of the device: the losses of the CPU in float64, and the bits of a replay frame by frame."""

import pytest
from faulty import discrete_environment

CODE = """
import copy, ctypes, os, sys, torch, torch_npu, torchair
from torch import nn
from torch.nn import functional as F
from torchair import _compiler

def total(name):
    return sum(run.replayer.counts()[name] for run in list(_compiler.runners))

class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(24, 32), nn.Embedding(12, 32)
        self.norms = nn.ModuleList(nn.LayerNorm(32) for _ in range(3))
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.inner, self.outer, self.head = nn.Linear(32, 64), nn.Linear(64, 32), nn.Linear(32, 24)

    def forward(self, tokens):
        x = self.token(tokens) + self.place(torch.arange(12, device=tokens.device))
        q, k, v = self.qkv(self.norms[0](x)).view(-1, 12, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(-1, 12, 32))
        x = x + self.outer(F.gelu(self.inner(self.norms[1](x))))
        return self.head(self.norms[2](x)).transpose(1, 2)

class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.head = nn.Embedding(24, 16), nn.Linear(16, 24)
        self.gates = nn.Linear(32, 64)

    def forward(self, tokens):
        x, out = self.token(tokens), []
        h = c = torch.zeros_like(x[:, 0])
        for step in range(6):
            i, f, g, o = self.gates(torch.cat([x[:, step], h], 1)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            out.append(self.head(h))
        return torch.stack(out, 2)

class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(24, 16)
        self.one, self.two = nn.Conv1d(16, 24, 3, padding=1), nn.Conv1d(24, 24, 3, padding=1)
        self.norm = nn.BatchNorm1d(24)

    def forward(self, tokens):
        x = self.token(tokens).transpose(1, 2)
        return self.two(F.relu(self.norm(self.one(x))))

draw = torch.Generator().manual_seed(3)
DATA = [torch.randint(0, 24, (4, 12), generator=draw) for _ in range(5)]

def trained(model, device, compiled):
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    run, step = model, optimizer.step
    if compiled:
        backend = torchair.get_npu_backend()
        run, step = torch.compile(model, backend=backend), torch.compile(step, backend=backend)
    losses = []
    for tokens in DATA:
        tokens = tokens.to(device)
        logits = run(tokens)
        loss = F.cross_entropy(logits, tokens[:, : logits.shape[2]])
        optimizer.zero_grad()
        loss.backward()
        step()
        losses.append(loss.detach())
    counted = {n: total(n) for n in ("replayed", "device_graphs", "programs", "reused")}
    return [*(l.cpu() for l in losses), *(p.detach().cpu() for p in model.parameters())], counted

torch.manual_seed(0)
model = NAME()
results = {}
for off in ("", "copies,dead,reuse,chains,tiles,capture"):
    os.environ["NPU_GRAPH_OFF"] = off
    torch._dynamo.reset()
    _compiler.runners.clear()
    results[off], counted = trained(model, "npu", compiled=True)
    assert counted["replayed"] >= 3, counted
    assert (counted["device_graphs"] > 0) == (off == ""), counted
    assert (counted["programs"] + counted["reused"] > 0) == (off == ""), counted
wanted, _ = trained(model.double(), "cpu", compiled=False)
on, off = results.values()
for a, b, e in zip(on, off, wanted, strict=True):
    assert torch.equal(a, b)
for a, e in zip(on[: len(DATA)], wanted):
    torch.testing.assert_close(a.double(), e, rtol=2e-4, atol=2e-5)
assert on[len(DATA) - 1] < on[0]
"""


# Slow: two compilations of forward, backward and optimizer in a process of its own.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["GPT", "LSTM", "Convolution"])
def test_a_compiled_model_trains_with_passes_and_graphs_of_the_device(run_python, name):
    run_python(
        CODE.replace("NAME()", f"{name}()"),
        timeout=300,
        **discrete_environment() | {"NPU_PROFILE": "none", "NPU_DISCRETE_CAPTURE": "1"},
    )
