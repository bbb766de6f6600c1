# SPDX-License-Identifier: Apache-2.0
# NPU_HOST_DEVICES=8
import threading, torch, torch_npu
torch.npu.set_device(3)
seen = []
def work(i):
    before = torch.npu.current_device()
    torch.npu.set_device(i)
    seen.append((before, torch.empty(1, device="npu").device.index))
for i in (5, 7):
    t = threading.Thread(target=work, args=(i,)); t.start(); t.join()
assert seen == [(0, 5), (0, 7)], seen
assert torch.npu.current_device() == 3
assert torch.empty(1, device="npu").device == torch.device("npu:3")
