# SPDX-License-Identifier: Apache-2.0
"""The models every benchmark and model test uses, pinned: sizes, batch and optimizer.

Weights and data are made on the CPU from a fixed seed, so that a model on any device starts
from the same numbers. `build(name)` gives a Case; `case.to(device)` gives a training step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

VOCAB = 96
HEAD_SIZE = 32


class Block(nn.Module):
    def __init__(self, width: int, dropout: float, head_size: int) -> None:
        super().__init__()
        self.heads = width // head_size
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.grow = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        p = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, time, width)
        x = x + F.dropout(self.project(y), self.dropout, self.training)
        y = self.shrink(F.gelu(self.grow(self.norm2(x))))
        return x + F.dropout(y, self.dropout, self.training)


class GPT(nn.Module):
    """Decoder-only transformer, output tied to the embedding."""

    def __init__(
        self,
        layers: int,
        width: int,
        context: int,
        dropout: float = 0.0,
        vocabulary: int = VOCAB,
        head_size: int = HEAD_SIZE,
    ) -> None:
        super().__init__()
        self.context = context
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, dropout, head_size) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        where = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(where)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-18 for 32x32 images."""

    def __init__(self, width: int = 64, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        stages = []
        inside = width
        for outside, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
            stages += [Residual(inside, outside, stride), Residual(outside, outside, 1)]
            inside = outside
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inside, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(self.stages(self.stem(x)), 1).flatten(1))


class RecurrentLM(nn.Module):
    """Language model on a stack of LSTM or GRU layers."""

    def __init__(self, cell: str, width: int, layers: int) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCAB, width)
        self.layers = getattr(nn, cell)(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, VOCAB)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.token(tokens))[0])


class MLP(nn.Sequential):
    def __init__(self, width: int = 64) -> None:
        super().__init__(
            nn.Linear(32, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.Tanh(),
            nn.Linear(width, 10),
        )


def next_token_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].reshape(-1))


def class_loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x), y)


@dataclass
class Case:
    """A model, its batch and its loss, on the CPU."""

    name: str
    make: Callable[[], nn.Module]
    batch: tuple[torch.Tensor, ...]
    loss: Callable[..., torch.Tensor]

    def to(self, device: str) -> Step:
        torch.manual_seed(1)
        return Step(self, self.make().to(device), [t.to(device) for t in self.batch])


class Step:
    """One training step, ready to repeat: forward, backward, AdamW."""

    def __init__(self, case: Case, model: nn.Module, batch: list[torch.Tensor]) -> None:
        self.case, self.model, self.batch = case, model, batch
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def __call__(self) -> torch.Tensor:
        loss = self.forward()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def forward(self) -> torch.Tensor:
        self.optimizer.zero_grad()
        return self.case.loss(self.model, *self.batch)


def _tokens(batch: int, time: int, vocabulary: int = VOCAB) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randint(vocabulary, (batch, time + 1), generator=generator)


def _images(batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    return (
        torch.randn(batch, 3, 32, 32, generator=generator),
        torch.randint(10, (batch,), generator=generator),
    )


def _gpt(
    layers: int,
    width: int,
    batch: int,
    time: int,
    dropout: float = 0.0,
    vocabulary: int = VOCAB,
    head_size: int = HEAD_SIZE,
):
    return lambda name: Case(
        name,
        lambda: GPT(layers, width, time, dropout, vocabulary, head_size),
        (_tokens(batch, time, vocabulary),),
        next_token_loss,
    )


def _vectors() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(16, 32, generator=generator)
    return x, torch.randint(10, (16,), generator=generator)


CASES = {
    "gpt-tiny": _gpt(4, 64, 2, 32),
    "gpt-small": _gpt(4, 256, 4, 128),
    "gpt-medium": _gpt(6, 512, 4, 256),
    # As published: 12 layers of 12 heads, for an accelerator.
    "gpt2-small": _gpt(12, 768, 4, 512, vocabulary=50257, head_size=64),
    "gpt-tiny-dropout": _gpt(4, 64, 2, 32, 0.1),
    "gpt-small-dropout": _gpt(4, 256, 4, 128, 0.1),
    "gpt-medium-dropout": _gpt(6, 512, 4, 256, 0.1),
    # Wide: a vocabulary as of real tokenizers, beside which the layers are small.
    "gpt-tiny-wide": _gpt(4, 64, 2, 32, vocabulary=256),
    "gpt-small-wide": _gpt(4, 256, 4, 128, vocabulary=2000),
    "gpt-medium-wide": _gpt(6, 512, 4, 256, vocabulary=8000, head_size=64),
    "resnet": lambda name: Case(name, ResNet, _images(8), class_loss),
    "resnet-narrow": lambda name: Case(name, lambda: ResNet(8), _images(4), class_loss),
    "lstm": lambda name: Case(
        name, lambda: RecurrentLM("LSTM", 128, 2), (_tokens(8, 64),), next_token_loss
    ),
    "gru": lambda name: Case(
        name, lambda: RecurrentLM("GRU", 64, 2), (_tokens(4, 32),), next_token_loss
    ),
    "mlp": lambda name: Case(name, MLP, _vectors(), class_loss),
}


def build(name: str) -> Case:
    if name not in CASES:
        raise ValueError(f"no model {name!r}; there are {', '.join(CASES)}")
    return CASES[name](name)
