# SPDX-License-Identifier: Apache-2.0
"""A training run with Lightning: `python lightning_run.py OUT KEYWORDS`, keywords of Trainer as JSON.

Rank 0 writes the losses of the whole batch, the device and the strategy to OUT. The rows of a batch
are the same for any number of ranks.
"""

import json
import os
import sys
import warnings

import torch

if torch.version.cuda or torch.version.hip:
    import torch_npu  # noqa: F401  not by itself in a GPU build

NAME = os.environ.get("LIGHTNING_NAME", "lightning.pytorch")
warnings.filterwarnings("ignore")
pl = __import__(NAME, fromlist=["Trainer"])


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1)
        )
        self.rows = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
        self.losses, self.where = [], ""

    def train_dataloader(self):
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        mine = torch.utils.data.Subset(self.rows, range(rank, 64, ranks))
        return torch.utils.data.DataLoader(mine, batch_size=8 // ranks)

    def training_step(self, batch, _):
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.losses.append(self.all_gather(loss.detach()).float().mean().item())
        self.where = str(self.device)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def run(keywords: dict) -> dict:
    torch.manual_seed(0)
    model = Model()
    trainer = pl.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=False, **keywords,
    )  # fmt: skip
    trainer.fit(model)
    return {
        "rank": trainer.global_rank,
        "losses": model.losses,
        "where": model.where,
        "strategy": type(trainer.strategy).__name__,
        "precision": str(getattr(trainer.precision_plugin, "device", "")),
    }


if __name__ == "__main__":
    found = run(json.loads(sys.argv[2]))
    if found["rank"] == 0:
        with open(sys.argv[1], "w") as file:
            json.dump(found, file)
