# SPDX-License-Identifier: Apache-2.0
"""A plain CUDA script: a small GPT learns to count, timed with CUDA events, saved and loaded."""

import os
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, CONTEXT, WIDTH = 32, 16, 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, length, 3, 4, WIDTH // 4)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def batch(generator, size=16):
    start = torch.randint(0, VOCABULARY, (size, 1), generator=generator, device="cuda")
    return (start + torch.arange(CONTEXT + 1, device="cuda")) % VOCABULARY


def main():
    assert torch.cuda.is_available(), "this script needs a GPU"
    torch.cuda.set_device(0)
    torch.manual_seed(0)
    torch.cuda.manual_seed_all(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    generator = torch.Generator(device="cuda").manual_seed(1)
    model = GPT().cuda()
    assert next(model.parameters()).device.type in ("cuda", "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for step in range(60):
        data = batch(generator)
        logits = model(data[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    end.record()
    torch.cuda.synchronize()
    print(f"loss {loss.item():.4f} after {begin.elapsed_time(end):.0f} ms")

    path = os.path.join(tempfile.mkdtemp(), "gpt.pt")
    torch.save(model.state_dict(), path)
    again = GPT().to("cuda:0")
    again.load_state_dict(torch.load(path, map_location="cuda"))
    with torch.no_grad():
        assert torch.equal(again(data[:, :-1]), model(data[:, :-1]))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        guess = model(data[:, :-1])[:, -1].argmax(-1)
    torch.cuda.current_stream().wait_stream(side)
    assert (guess == data[:, -1]).float().mean().item() > 0.9
    print("PASSED")


if __name__ == "__main__":
    main()
