# SPDX-License-Identifier: Apache-2.0
"""Batches that are on the device when they are asked for."""

import torch

__all__ = ["Prefetcher"]


class Prefetcher:
    """Copies the next batch of a loader on a stream of its own; next() gives (None, None) at the
    end."""

    def __init__(self, loader, stream=None):
        self.loader = iter(loader)
        self.stream = torch.npu.Stream() if stream is None else stream
        self.preload()

    def preload(self) -> None:
        try:
            self.next_input, self.next_target = next(self.loader)
        except StopIteration:
            self.next_input = self.next_target = None
            return
        with torch.npu.stream(self.stream):
            self.next_input = self.next_input.npu(non_blocking=True)
            self.next_target = self.next_target.npu(non_blocking=True)

    def next(self):
        current = torch.npu.current_stream()
        current.wait_stream(self.stream)
        batch = self.next_input, self.next_target
        for tensor in batch:
            if tensor is not None:
                tensor.record_stream(current)
        if batch[0] is not None:
            self.preload()
        return batch
