# SPDX-License-Identifier: Apache-2.0
"""Trains a small model on npu:0, then names the operators that an Ascend 910B would run on its CPU."""

import torch
from torch import nn

torch.manual_seed(0)
layers = nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 1)
model = nn.Sequential(*layers).npu()
optimizer = torch.optim.AdamW(model.parameters(), 0.01)
x = torch.randn(256, 16, device="npu")
y = torch.fmax(x[:, :1], x[:, 1:2])  # the chip has no fmax

for step in range(101):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:3}  loss {loss:.4f}  on {x.device}")

for row in torch.npu.fallback_stats():
    print("falls back:", row["reported"], row["call_site"])
