# SPDX-License-Identifier: Apache-2.0
"""A training run with accelerate: `accelerate launch accelerate_run.py ddp|fsdp2 PRECISION OUT`; OUT gets the losses."""

import json
import sys

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(8, 8)

    def forward(self, x):
        return x + self.inner(x).relu()


def main(way, precision, out):
    options = {}
    if way == "fsdp2":
        options["fsdp_plugin"] = FullyShardedDataParallelPlugin(
            fsdp_version=2,
            auto_wrap_policy="transformer_based_wrap",
            transformer_cls_names_to_wrap=["Block"],
        )
    accelerator = Accelerator(mixed_precision=precision, cpu=way == "cpu", **options)
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(), Block(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    rows = torch.utils.data.TensorDataset(torch.randn(32, 8))
    loader = torch.utils.data.DataLoader(rows, batch_size=8 // accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for epoch in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            loss = model(x).float().square().mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())
        if epoch == 0:
            accelerator.save_state(out + ".state")
            accelerator.wait_for_everyone()
            accelerator.load_state(out + ".state")
    if accelerator.is_main_process:
        with open(out, "w") as file:
            json.dump({"losses": losses, "kind": str(accelerator.distributed_type)}, file)
    accelerator.end_training()


if __name__ == "__main__":
    main(*sys.argv[1:])
