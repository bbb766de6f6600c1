# SPDX-License-Identifier: Apache-2.0
"""Trains a small model on npu:0, then says which of its operators the imitated chip would not have run."""

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.GELU(), torch.nn.Linear(64, 1)).npu()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.randn(256, 16, device="npu")
y = torch.fmax(x[:, :1], x[:, 1:2])  # the chip has no fmax
for step in range(101):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step:3}   loss {loss.item():.4f}   on {x.device}")
print(torch.npu.fallback_report())
