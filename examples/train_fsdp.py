# SPDX-License-Identifier: Apache-2.0
"""The demo's GPT with FSDP2: each rank keeps its part of weights, gradients and optimizer state.

NPU_HOST_DEVICES=2 torchrun --nproc_per_node=2 examples/train_fsdp.py [--steps 60] [--checkpoint FOLDER]
python examples/train_fsdp.py --batch 32       # one process, the same rows: the same losses
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

from examples import parallel


def main() -> None:
    asked = parallel.options(__doc__)
    place = parallel.start()
    module = parallel.model().to(place.device)
    for block in module.blocks:
        fully_shard(block)
    fully_shard(module)
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3)

    def state(step: int) -> dict:
        weights, moments = get_state_dict(module, optimizer)
        return {"model": weights, "optimizer": moments, "step": torch.tensor(step)}

    first = 0
    if asked.checkpoint and os.path.exists(os.path.join(asked.checkpoint, ".metadata")):
        saved = state(0)
        dcp.load(saved, checkpoint_id=asked.checkpoint)
        set_state_dict(
            module, optimizer,
            model_state_dict=saved["model"], optim_state_dict=saved["optimizer"],
        )  # fmt: skip
        first = int(saved["step"])

    def save(step: int) -> None:
        dcp.save(state(step), checkpoint_id=asked.checkpoint)

    losses = parallel.train(place, module, optimizer, asked, first, save)
    parallel.report(place, asked, first, losses)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
