# SPDX-License-Identifier: Apache-2.0
"""A plain CUDA script: a convolution net learns digits it is shown (generated: no download)."""

import argparse

import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 16, 3, padding=1)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return F.log_softmax(self.out(self.drop(x.flatten(1))), dim=1)


def make_digits(count, generator):
    """Ten patterns of 28 x 28, each a few times, with noise."""
    patterns = (torch.rand(10, 1, 28, 28, generator=generator) > 0.7).float()
    labels = torch.randint(0, 10, (count,), generator=generator)
    return patterns[labels] + 0.3 * torch.randn(count, 1, 28, 28, generator=generator), labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    torch.manual_seed(0)
    images, labels = make_digits(320, torch.Generator().manual_seed(1))
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    if use_cuda:
        print("training on", torch.cuda.get_device_name(0))
    for epoch in range(args.epochs):
        model.train()
        for begin in range(0, len(images), 32):
            data = images[begin : begin + 32].to(device, non_blocking=True)
            target = labels[begin : begin + 32].to(device, non_blocking=True)
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(images.to(device)).argmax(1) == labels.to(device)).sum().item()
        print(f"epoch {epoch}: loss {loss.item():.4f}, {right} of {len(images)} right")
    if use_cuda:
        torch.cuda.synchronize()
        print("memory", torch.cuda.max_memory_allocated() // 1024, "KiB")
    assert right > 0.9 * len(images), right
    print("PASSED")


if __name__ == "__main__":
    main()
