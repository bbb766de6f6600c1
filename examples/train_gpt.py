# SPDX-License-Identifier: Apache-2.0
"""`make demo`: a character GPT learns the log book of a harbour, on npu:0.

python -m examples.train_gpt [--steps 200] [--device npu:0]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.models import GPT, next_token_loss

TEXT = Path(__file__).with_name("corpus.txt")
CONTEXT, BATCH = 64, 16


def encode(text: str) -> torch.Tensor:
    """Printable ASCII is 1..95, everything else (the newline) is 0."""
    return torch.tensor([ord(c) - 31 if 32 <= ord(c) < 127 else 0 for c in text])


def decode(tokens: list[int]) -> str:
    return "".join(chr(t + 31) if t else "\n" for t in tokens)


def batches(data: torch.Tensor, device: torch.device):
    generator = torch.Generator().manual_seed(0)
    while True:
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=generator)
        rows = torch.stack([data[s : s + CONTEXT + 1] for s in starts.tolist()])
        yield rows.to(device, non_blocking=True)


@torch.no_grad()
def sample(model: GPT, prompt: str, length: int) -> str:
    model.eval()
    tokens = encode(prompt).to(next(model.parameters()).device)[None]
    for _ in range(length):
        logits = model(tokens[:, -CONTEXT:])[:, -1] / 0.7
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], dim=1)
    return decode(tokens[0].tolist())


def train(device: torch.device, steps: int) -> tuple[GPT, list[float], float]:
    torch.manual_seed(0)
    model = GPT(layers=4, width=128, context=CONTEXT).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    data = batches(encode(TEXT.read_text(encoding="ascii")), device)
    losses: list[float] = []
    start = time.perf_counter()
    with tqdm(range(steps), unit="step", ncols=88, mininterval=0.5) as bar:
        for _ in bar:
            optimizer.zero_grad()
            loss = next_token_loss(model, next(data))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    return model, losses, time.perf_counter() - start


def report(device: torch.device, losses: list[float], seconds: float) -> None:
    marks = sorted({0, len(losses) // 4, len(losses) // 2, 3 * len(losses) // 4, len(losses) - 1})
    print("loss      " + "  ->  ".join(f"{losses[i]:.3f}" for i in marks))
    print(f"speed     {len(losses) * BATCH * CONTEXT / seconds:,.0f} tokens/s")
    peak = torch.npu.max_memory_allocated(device) / 2**20
    print(f"memory    {peak:.1f} MiB peak on {device} ({torch.npu.get_device_name(device)})")
    print("fell back, on the imitated chip:")
    print(torch.npu.fallback_report())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.train_gpt", description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--device", default="npu:0")
    options = parser.parse_args()
    if torch.version.cuda or torch.version.hip:
        print(
            f"torch {torch.__version__} is a GPU build: the plugin loads on `import torch_npu` only."
        )
    import torch_npu  # noqa: F401

    device = torch.device(options.device)
    model, losses, seconds = train(device, options.steps)
    report(device, losses, seconds)
    print("\na page the model wrote:\n" + sample(model, "Day 7: ", 200) + "\n")
    print(
        "Next: `python -m opennpu doctor`, your own script with device='npu', docs/architecture.md."
    )
    if losses[-1] >= losses[0] - 0.5:
        raise SystemExit(
            f"the loss did not fall ({losses[0]:.3f} -> {losses[-1]:.3f}): please report this"
        )


if __name__ == "__main__":
    main()
