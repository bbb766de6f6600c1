# SPDX-License-Identifier: Apache-2.0
import threading, torch, torch_npu
library = torch.library.Library("queued", "DEF")
library.define("copy_later(Tensor x) -> Tensor")
def copy_later(x):
    # Another thread queues work on memory it gives back at once.
    def other():
        t = torch.empty(5000, device="npu")
        t.fill_(9)
    thread = threading.Thread(target=other)
    thread.start(); thread.join()
    return x.clone()  # may get that memory
library.impl("copy_later", copy_later, "CPU")
x = torch.arange(5000.0, device="npu")
for _ in range(3):
    y = torch.ops.queued.copy_later(x)
    torch.npu.synchronize()
    assert torch.equal(y.cpu(), torch.arange(5000.0)), y
