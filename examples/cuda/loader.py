# SPDX-License-Identifier: Apache-2.0
"""A plain CUDA script: a DataLoader with workers and pinned memory feeds the GPU."""

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Points(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        x = torch.tensor([index / 256, (index * 7 % 256) / 256])
        return x, (x.sum() > 1).long()


class Prefetch:
    """Copies the next batch on a stream of its own while this one is used."""

    def __init__(self, loader):
        self.loader, self.stream = iter(loader), torch.cuda.Stream()
        self.load()

    def load(self):
        self.next = next(self.loader, None)
        if self.next is not None:
            with torch.cuda.stream(self.stream):
                self.next = [t.cuda(non_blocking=True) for t in self.next]

    def __iter__(self):
        while self.next is not None:
            torch.cuda.current_stream().wait_stream(self.stream)
            batch = self.next
            for tensor in batch:
                tensor.record_stream(torch.cuda.current_stream())
            self.load()
            yield batch


def main():
    torch.manual_seed(0)
    loader = DataLoader(
        Points(),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        pin_memory=True,
        persistent_workers=True,
    )
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    right = 0
    for epoch in range(6):
        right = seen = 0
        for x, y in Prefetch(loader):
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (out.argmax(1) == y).sum().item()
            seen += len(y)
        print(f"epoch {epoch}: {right} of {seen}")
    assert right > 0.85 * seen
    print("PASSED")


if __name__ == "__main__":
    main()
