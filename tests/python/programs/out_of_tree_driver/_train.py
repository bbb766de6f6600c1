# SPDX-License-Identifier: Apache-2.0
import sys
import torch
import torch_npu

sys.path.insert(0, sys.argv[1])
from benchmarks.models import build

assert torch.npu.get_device_name(0) == "Acme One"

def curve(device):
    step = build("gpt-tiny").to(device)
    return [float(step()) for _ in range(5)]

npu, cpu = curve("npu:0"), curve("cpu")
assert npu[-1] < npu[0], npu
for got, want in zip(npu, cpu):
    assert abs(got - want) <= 1e-4 * abs(want), (npu, cpu)
print("trained")
