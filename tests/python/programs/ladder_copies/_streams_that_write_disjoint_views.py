# SPDX-License-Identifier: Apache-2.0
import threading
base = torch.zeros(256, 8, device="npu")
torch.npu.synchronize()
rounds, lost = 60, []
meet = threading.Barrier(2)
def work(column):
    view, stream = base[:, column], torch.npu.Stream()
    with torch.npu.stream(stream):
        for i in range(rounds):
            meet.wait()
            torch.fmax(torch.full((256,), float(i), device="npu"), view, out=view)
            stream.synchronize()
            lost.extend([i] if view.min().item() != i else [])
threads = [threading.Thread(target=work, args=(c,)) for c in (2, 3)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not lost, lost
assert base[:, :2].eq(0).all() and base[:, 4:].eq(0).all()
