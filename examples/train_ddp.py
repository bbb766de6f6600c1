# SPDX-License-Identifier: Apache-2.0
"""The demo's GPT on several npus with DistributedDataParallel.

NPU_HOST_DEVICES=4 torchrun --nproc_per_node=4 examples/train_ddp.py [--steps 60] [--checkpoint FILE]
python examples/train_ddp.py --batch 64        # one process, the same rows: the same losses
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from examples import parallel


def main() -> None:
    asked = parallel.options(__doc__)
    place = parallel.start()
    module = parallel.model().to(place.device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3)
    first = 0
    if asked.checkpoint and os.path.exists(asked.checkpoint):
        saved = torch.load(asked.checkpoint, map_location=place.device)
        module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    wrapped = DistributedDataParallel(module, device_ids=[place.device.index])

    def save(step: int) -> None:
        if place.rank == 0:  # to the name only when it is whole: a rank may die at any time
            state = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step}, asked.checkpoint + ".new")
            os.replace(asked.checkpoint + ".new", asked.checkpoint)

    losses = parallel.train(place, wrapped, optimizer, asked, first, save)
    parallel.report(place, asked, first, losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
