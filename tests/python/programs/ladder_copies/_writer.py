# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
library = torch.library.Library("rung5", "DEF")
library.define("write(Tensor(a!) y, int value) -> ()")
meanwhile = None
def write(y, value):
    assert y.device.type == "cpu"
    y.fill_(value)
    meanwhile()  # another user of the same storage, while the kernel runs
library.impl("write", write, "CPU")
library.impl("write", write, "QuantizedCPU")
