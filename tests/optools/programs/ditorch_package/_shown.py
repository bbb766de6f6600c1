# SPDX-License-Identifier: Apache-2.0
import threading, torch, ditorch
x = torch.ones(2, device="cuda")
def look():
    seen.append((str(x.device), x.device.type, x.is_cuda, "cuda" in repr(x), x.device == torch.device("cuda:0")))
seen = []
look()
thread = threading.Thread(target=look); thread.start(); thread.join()
assert seen[0] == seen[1]
assert str(torch.ones(2).device) == "cpu"
print(seen[0])
