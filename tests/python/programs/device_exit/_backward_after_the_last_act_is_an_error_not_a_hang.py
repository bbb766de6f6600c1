# SPDX-License-Identifier: Apache-2.0
import atexit
def late():
    x = torch.ones(2, device="npu", requires_grad=True)
    try:
        x.sum().backward()
    except RuntimeError:
        print("error")
atexit.register(late)  # before the plugin, so it runs after it
import torch, torch_npu
x = torch.ones(2, device="npu", requires_grad=True)
torch.autograd.set_multithreading_enabled(True)  # on autograd's thread of the device
x.sum().backward()
