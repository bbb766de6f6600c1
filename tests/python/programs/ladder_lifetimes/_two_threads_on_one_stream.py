# SPDX-License-Identifier: Apache-2.0
import threading, torch, torch_npu
x = torch.randn(24, 24, generator=torch.Generator().manual_seed(0))
expected = torch.linalg.svdvals(x)
x, wrong, stop = x.to("npu"), [], threading.Event()
def queue():
    while not stop.is_set():
        for _ in range(5):
            torch.empty(24, 24, device="npu").fill_(9)
        torch.npu.synchronize()
thread = threading.Thread(target=queue)
thread.start()
for _ in range(30):
    got = torch.linalg.svdvals(x).cpu()
    wrong.extend([got] if not torch.equal(got, expected) else [])
stop.set(); thread.join()
assert not wrong, len(wrong)
