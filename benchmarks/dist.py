# SPDX-License-Identifier: Apache-2.0
"""Collectives on npu tensors over Gloo's on CPU tensors, and DDP steps: two ranks, one thread each.

python -m benchmarks.dist [--pairs N] [NAME ...]

Both ranks take both sides in turn, in one run; rank 0 prints what it saw. A name chooses rows that contain it.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from benchmarks import measure, models

RANKS = 2
KIB, MIB = 1024, 1024 * 1024
Run = Callable[[], object]


def all_reduce(device: str, elements: int) -> Run:
    x = torch.zeros(elements, device=device)
    return lambda: dist.all_reduce(x)


def all_gather(device: str, elements: int) -> Run:
    x, whole = torch.zeros(elements, device=device), torch.empty(elements * RANKS, device=device)
    return lambda: dist.all_gather_into_tensor(whole, x)


def reduce_scatter(device: str, elements: int) -> Run:
    x, part = torch.zeros(elements * RANKS, device=device), torch.empty(elements, device=device)
    return lambda: dist.reduce_scatter_tensor(part, x)


def all_to_all(device: str, elements: int) -> Run:
    x, y = (torch.zeros(elements, device=device) for _ in range(2))
    return lambda: dist.all_to_all_single(y, x)


def broadcast(device: str, elements: int) -> Run:
    x = torch.zeros(elements, device=device)
    return lambda: dist.broadcast(x, 0)


def ddp_step(device: str, _: int) -> Run:
    step = models.build("gpt-small").to(device)
    step.model = DistributedDataParallel(step.model)
    return step


# name, what, bytes, calls per time, the most it may take (None: only shown)
ROWS = (
    ("all_reduce 4 KiB", all_reduce, 4 * KIB, 100, 1.2),
    ("all_reduce 4 MiB", all_reduce, 4 * MIB, 5, 1.05),
    ("all_reduce 64 MiB", all_reduce, 64 * MIB, 1, 1.05),
    ("all_gather 4 MiB", all_gather, 4 * MIB, 5, None),
    ("reduce_scatter 4 MiB", reduce_scatter, 4 * MIB, 5, None),
    ("all_to_all 4 MiB", all_to_all, 4 * MIB, 5, None),
    ("broadcast 4 MiB", broadcast, 4 * MIB, 5, None),
    ("DDP step of gpt-small", ddp_step, 0, 1, 1.0),
)


def chosen(names: list[str]) -> Iterator[tuple]:
    for row in ROWS:
        if not names or any(name in row[0] for name in names):
            yield row


def rank_of(rank: int, file: str, names: list[str], pairs: int) -> None:
    import torch_npu  # noqa: F401

    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.npu.set_device(rank)
    dist.init_process_group(
        "cpu:gloo,npu:hccl", init_method=f"file://{file}", rank=rank, world_size=RANKS
    )
    for name, what, size, repeat, bar in chosen(names):
        # The order of the calls is the same on both ranks: it depends on nothing measured.
        ours, theirs, again = (what(d, size // 4) for d in ("npu", "cpu", "cpu"))
        for run in (ours, theirs, again):
            for _ in range(3):
                run()
        quiet = measure.pairs(theirs, again, pairs, repeat)
        ratio = measure.pairs(ours, theirs, pairs, repeat)
        if rank == 0:
            said = "" if bar is None else f", bar {bar}x: {'met' if ratio.meets(bar) else 'missed'}"
            print(f"{name}: {ratio}{said} (A/A {quiet.median:.3f}x)", flush=True)
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--pairs", type=int, default=21)
    options = parser.parse_args()
    if not list(chosen(options.names)):
        parser.error(f"no row has {' or '.join(options.names)}: {', '.join(r[0] for r in ROWS)}")
    os.environ.setdefault("NPU_HOST_DEVICES", str(RANKS))
    with tempfile.TemporaryDirectory() as folder:
        arguments = (os.path.join(folder, "store"), options.names, options.pairs)
        mp.spawn(rank_of, args=arguments, nprocs=RANKS)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
