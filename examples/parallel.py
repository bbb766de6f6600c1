# SPDX-License-Identifier: Apache-2.0
"""What train_ddp.py and train_fsdp.py share: ranks, their part of each batch, the loop.

Every rank draws the same rows and keeps its own: a run of n ranks sees what one process with n
times the batch sees, so the losses agree.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401
from torch import nn

from benchmarks.models import GPT, next_token_loss
from examples.train_gpt import CONTEXT, TEXT, encode


@dataclass
class Place:
    rank: int
    world: int
    device: torch.device


def options(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--batch", type=int, default=16, help="rows per rank and step")
    parser.add_argument("--checkpoint", help="file or folder to save to, and to go on from")
    parser.add_argument("--save-every", type=int, default=20, help="steps between checkpoints")
    return parser.parse_args()


def start() -> Place:
    """This process's place in the group; alone without torchrun."""
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local = int(os.environ.get("LOCAL_RANK", 0))
    device = torch.device("npu", local % torch.npu.device_count())
    torch.npu.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("cpu:gloo,npu:hccl")
    else:
        dist.init_process_group(
            "cpu:gloo,npu:hccl", store=dist.HashStore(), rank=rank, world_size=world
        )
    return Place(rank, world, device)


def model() -> GPT:
    """The demo's model, with the same first weights on every rank."""
    torch.manual_seed(0)
    return GPT(layers=4, width=128, context=CONTEXT)


def batches(place: Place, batch: int) -> Iterator[torch.Tensor]:
    data = encode(TEXT.read_text(encoding="ascii"))
    generator = torch.Generator().manual_seed(0)
    mine = slice(place.rank * batch, (place.rank + 1) * batch)
    while True:
        starts = torch.randint(
            len(data) - CONTEXT - 1, (batch * place.world,), generator=generator
        )[mine]
        rows = torch.stack([data[s : s + CONTEXT + 1] for s in starts.tolist()])
        yield rows.to(place.device, non_blocking=True)


def train(
    place: Place,
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    asked: argparse.Namespace,
    first: int,
    save: Callable[[int], None],
) -> list[float]:
    """The losses of steps `first` to `asked.steps`, each the mean over all ranks."""
    data = batches(place, asked.batch)
    for _ in range(first):
        next(data)
    losses = []
    for step in range(first, asked.steps):
        optimizer.zero_grad()
        loss = next_token_loss(module, next(data))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole, op=dist.ReduceOp.AVG)
        losses.append(whole.item())
        if asked.checkpoint and (step + 1) % asked.save_every == 0:
            save(step + 1)
    return losses


def report(place: Place, asked: argparse.Namespace, first: int, losses: list[float]) -> None:
    if place.rank != 0:
        return
    peak = torch.npu.max_memory_allocated(place.device) / 2**20
    print(f"ranks     {place.world}, {asked.batch} rows each", end="")
    print(f", from step {first}" if first else "")
    marks = sorted({0, len(losses) // 4, len(losses) // 2, 3 * len(losses) // 4, len(losses) - 1})
    print("loss      " + "  ->  ".join(f"{losses[i]:.4f}" for i in marks if losses))
    print(f"memory    {peak:.1f} MiB peak on {place.device}")
