# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset


def work(rank, x, model, queue):
    same = model.tied is model.weight
    parameter = isinstance(model.weight, torch.nn.Parameter)
    queue.put((str(x.device), x.dtype, x.sum().item(), model(x.float()).sum().item(), same, parameter))


class Rows(Dataset):
    def __init__(self):
        self.x, self.layer = torch.arange(8.0, device="npu"), torch.nn.Linear(1, 1).npu()

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.layer(self.x[i : i + 1]).detach().cpu()


if __name__ == "__main__":
    model = torch.nn.Linear(4, 4).npu()
    model.tied = model.weight
    x = torch.ones(4, 2, device="npu", dtype=torch.bfloat16).t()
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, args=(x, model, queue), nprocs=2)
    for _ in range(2):
        device, dtype, total, output, same, parameter = queue.get()
        assert (device, dtype, total) == ("npu:0", torch.bfloat16, 8.0)
        assert abs(output - model(x.float()).sum().item()) < 1e-6 and same and parameter
    rows = Rows()
    loaded = list(DataLoader(rows, batch_size=None, num_workers=1, multiprocessing_context="spawn"))
    assert torch.equal(torch.cat(loaded), torch.cat([rows[i] for i in range(8)]))
    print("done")
