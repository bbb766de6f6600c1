# SPDX-License-Identifier: Apache-2.0
# NPU_DISCRETE_DELAY_US=0
import threading
base = torch.zeros(6, 64).npu()
torch.npu.synchronize()
failures = []
def work(row):
    mine, stream = base[row], torch.npu.Stream()
    try:
        with torch.npu.stream(stream):
            for i in range(40):
                (mine.add_ if i % 2 else mine.sub_)(-1 if i % 3 else 1)
                expected = mine.cpu()
                assert torch.equal(read(mine), expected), (row, i)
                mine.mul_(2)
                assert torch.equal(read(mine), expected * 2), (row, i)
                mine.copy_(expected)
                stream.synchronize()
    except BaseException as error:
        failures.append(error)
threads = [threading.Thread(target=work, args=(row,)) for row in range(6)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not failures, failures
