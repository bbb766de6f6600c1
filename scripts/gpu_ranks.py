# SPDX-License-Identifier: Apache-2.0
"""Collectives of one rank on NCCL, and of two ranks on one GPU, which NCCL refuses: those go through the host.

Exits with 1 where a result is wrong or NCCL was not used. Prints what the collectives ran on.
"""

import datetime
import os
import subprocess
import sys
import tempfile
import time

CALLS = 100
LIMIT = datetime.timedelta(seconds=20)


def all_reduced(dist, torch, dtype, size):
    """Sums of small whole numbers: exact in every dtype."""
    x = torch.arange(64, device="npu").to(dtype) + dist.get_rank()
    dist.all_reduce(x)
    want = torch.arange(64, dtype=torch.float64) * size + size * (size - 1) // 2
    return torch.equal(x.double().cpu(), want)


def run(rank: int, size: int, store: str) -> int:
    import torch
    import torch.distributed as dist
    import torch_npu
    from torch_npu.distributed import collective_transports

    torch.npu.set_device(0)
    dist.init_process_group(
        "cpu:gloo,npu:hccl",
        init_method=f"file://{store}",
        rank=rank,
        world_size=size,
        timeout=LIMIT,
    )
    wrong = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64):
        if not all_reduced(dist, torch, dtype, size):
            wrong.append(str(dtype))
    parts = [torch.empty(4, device="npu") for _ in range(size)]
    dist.all_gather(parts, torch.full((4,), float(rank), device="npu"))
    if [part[0].item() for part in parts] != [float(r) for r in range(size)]:
        wrong.append("all_gather")
    moved = torch.full((4,), float(rank), device="npu")
    dist.broadcast(moved, 0)
    if moved.tolist() != [0.0] * 4:
        wrong.append("broadcast")
    torch.npu.synchronize()
    x = torch.ones(1024, device="npu")
    began = time.perf_counter()
    for _ in range(CALLS):
        dist.all_reduce(x)
    issued = time.perf_counter() - began
    torch.npu.synchronize()
    used = collective_transports()
    if rank == 0:
        print(f"{size} rank(s), torch_npu {torch_npu.__version__}: {used}", flush=True)
        print(f"issue of a small all_reduce: {issued / CALLS * 1e6:.1f} us", flush=True)
    dist.destroy_process_group()
    if wrong:
        print(f"rank {rank} of {size}: wrong: {', '.join(wrong)}", flush=True)
    on_nccl = used.get("all_reduce", {}).get("driver", 0) > 0
    if size == 1 and not on_nccl:
        print("FAILED: one rank did not use NCCL", flush=True)
    return bool(wrong) or (size == 1 and not on_nccl)


def main() -> int:
    if len(sys.argv) == 4:
        return run(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    failed = 0
    for size in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "store")
            ranks = [
                subprocess.Popen([sys.executable, __file__, str(rank), str(size), store])
                for rank in range(size)
            ]
            failed |= any([rank.wait() != 0 for rank in ranks])
    return failed


if __name__ == "__main__":
    sys.exit(main())
