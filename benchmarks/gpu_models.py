# SPDX-License-Identifier: Apache-2.0
"""The training steps that benchmarks/gpu.py times: models of the sizes people train on one GPU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.models import GPT, next_token_loss

GPT2 = dict(layers=12, width=768, context=1024, vocabulary=50257, head_size=64)


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int, inside: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.gate = nn.Linear(width, inside, bias=False)
        self.up = nn.Linear(width, inside, bias=False)
        self.down = nn.Linear(inside, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q, k = (t * cos + turned(t) * sin for t in (q, k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(y.transpose(1, 2).reshape(batch, time, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def turned(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat((-b, a), dim=-1)


class Llama(nn.Module):
    """About 1.1 billion parameters with these defaults."""

    def __init__(self, layers=16, width=2048, heads=32, inside=5632, vocabulary=32000) -> None:
        super().__init__()
        self.angle = width // heads
        self.token = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, inside) for _ in range(layers))
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token(tokens)
        steps = torch.arange(0, self.angle, 2, device=x.device) / self.angle
        place = torch.arange(tokens.shape[1], device=x.device)
        angles = torch.outer(place, 10000.0**-steps).repeat(1, 2)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        outside = 4 * width
        self.body = nn.Sequential(
            *convolution(inside, width, 1, 1),
            nn.ReLU(),
            *convolution(width, width, 3, stride),
            nn.ReLU(),
            *convolution(width, outside, 1, 1),
        )
        same = stride == 1 and inside == outside
        self.shortcut = nn.Sequential(*([] if same else convolution(inside, outside, 1, stride)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def convolution(inside: int, outside: int, size: int, stride: int) -> list[nn.Module]:
    return [
        nn.Conv2d(inside, outside, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outside),
    ]


class ResNet50(nn.Sequential):
    def __init__(self) -> None:
        parts = [*convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        inside = 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                parts.append(Bottleneck(inside, width, stride if i == 0 else 1))
                inside = 4 * width
        super().__init__(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000))


def training_step(device: str, model: nn.Module, loss_of, *batch, amp=False) -> Callable[[], float]:
    model = model.to(device)
    batch = [t.to(device) for t in batch]
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def step() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=amp):
            loss = loss_of(model, *batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step


def image_loss(model: nn.Module, images: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(images), classes)


def tokens(vocabulary: int, batch: int, time: int) -> torch.Tensor:
    return torch.randint(vocabulary, (batch, time + 1))


def gpt_tiny(device: str):
    model = GPT(layers=4, width=128, context=64)
    return training_step(device, model, next_token_loss, tokens(96, 8, 64))


def gpt2(device: str, amp: bool):
    model = GPT(**GPT2)
    model = model if amp else model.to(torch.bfloat16)
    return training_step(device, model, next_token_loss, tokens(50257, 8, 1024), amp=amp)


def llama(device: str):
    return training_step(
        device, Llama().to(torch.bfloat16), next_token_loss, tokens(32000, 2, 2048)
    )


def resnet50(device: str):
    images = torch.randn(128, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    model = ResNet50().to(memory_format=torch.channels_last)
    classes = torch.randint(1000, (128,))
    return training_step(device, model, image_loss, images, classes, amp=True)


STEPS = {
    "GPT tiny, training step": gpt_tiny,
    "GPT-2 small B8 T1024 bf16": lambda device: gpt2(device, amp=False),
    "GPT-2 small B8 T1024 amp": lambda device: gpt2(device, amp=True),
    "Llama 1B B2 T2048 bf16": llama,
    "ResNet-50 B128 channels last amp": resnet50,
}
