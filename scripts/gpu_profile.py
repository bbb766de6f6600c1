# SPDX-License-Identifier: Apache-2.0
"""A training step under torch.profiler: which lanes the trace has, and the kernels that took longest in each.

Shows who records on a GPU: NPU_CUDA_TRY=profiler asks CUPTI, otherwise events give the times. In a CUDA build of PyTorch
Kineto may have CUPTI itself; then "GPU" lanes are its own, and the log says that the driver's records decline.
"""

import collections
import json
import os
import tempfile

import torch
import torch_npu  # noqa: F401
from torch.profiler import ProfilerActivity, profile


def trace() -> list[dict]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(512, 2048),
        torch.nn.GELU(),
        torch.nn.LayerNorm(2048),
        torch.nn.Linear(2048, 512),
    ).npu()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(256, 512, device="npu")

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        x.cumsum(0)  # one of PyTorch's own kernels

    step()
    torch.npu.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as recorded:
        step()
        torch.npu.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        recorded.export_chrome_trace(path)
        with open(path) as file:
            return json.load(file)["traceEvents"]


def main() -> None:
    events = trace()
    labels = {
        event["pid"]: event["args"]["labels"]
        for event in events
        if event.get("name") == "process_labels"
    }
    lanes = collections.defaultdict(collections.Counter)
    counts = collections.Counter()
    for event in events:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            lane = labels.get(event["pid"], str(event["pid"]))
            counts[lane, event["cat"]] += 1
            lanes[lane][event["name"]] += event["dur"]
    print("records:", {f"{lane}, {what}": n for (lane, what), n in sorted(counts.items())})
    for lane, names in sorted(lanes.items()):
        print(f"{lane}: {sum(names.values()):.1f} us")
        for name, took in names.most_common(5):
            print(f"  {took:8.1f} us  {name[:100]}")


if __name__ == "__main__":
    main()
