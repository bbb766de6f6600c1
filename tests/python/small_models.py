# SPDX-License-Identifier: Apache-2.0
"""Small models, one of each kind, with an input each."""

import torch
from torch import nn
from torch.nn import functional as F


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.norm = nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 96)
        self.head = nn.Linear(32, 50, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, 4, c // 4).transpose(1, 2)
            for part in self.qkv(self.norm(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + y.transpose(1, 2).reshape(b, t, c))


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = kind(8, 16, 2, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.layers(x)[0])


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


_MAKERS = {
    "mlp": (mlp, lambda: torch.randn(5, 8)),
    "conv": (ConvNet, lambda: torch.randn(2, 3, 8, 8)),
    "gpt": (Gpt, lambda: torch.randint(50, (2, 10))),
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(2, 5, 8)),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(2, 5, 8)),
}
MODELS = list(_MAKERS)


def make(name):
    """The model and its input, the same every time."""
    torch.manual_seed(0)
    model, data = _MAKERS[name]
    return model(), data()
