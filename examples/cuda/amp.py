# SPDX-License-Identifier: Apache-2.0
"""A plain CUDA script: mixed precision with autocast and GradScaler, in both spellings."""

import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore", category=FutureWarning)  # torch.cuda.amp is the old spelling


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 1)).cuda()


def train(autocast, scaler, steps=60):
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x = torch.randn(128, 32, device="cuda")
    y = x[:, :1] * 2 - x[:, 1:2]
    first = None
    for _ in range(steps):
        optimizer.zero_grad()
        with autocast():
            out = model(x)
            assert out.dtype in (torch.float16, torch.bfloat16), out.dtype
            loss = nn.functional.mse_loss(out.float(), y)
        first = loss.item() if first is None else first
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
    print(f"loss {first:.4f} -> {loss.item():.4f}, scale {scaler.get_scale():.0f}")
    assert loss.item() < 0.3 * first
    return model


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    assert device.type == "cuda", "this script needs a GPU"
    assert torch.cuda.is_bf16_supported()
    train(torch.cuda.amp.autocast, torch.cuda.amp.GradScaler())
    train(lambda: torch.autocast("cuda", dtype=torch.bfloat16), torch.amp.GradScaler("cuda"))
    train(
        lambda: torch.autocast(device_type=device.type, dtype=torch.float16),
        torch.amp.GradScaler(device.type, init_scale=1024.0),
    )

    class Doubled(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            assert x.dtype == torch.float32
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            return grad * 2

    x = torch.ones(3, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        Doubled.apply(x).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
    print("PASSED")


if __name__ == "__main__":
    main()
