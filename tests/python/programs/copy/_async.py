# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
x = torch.arange(100000.0)
for i in range(5):
    y = x.to("npu", non_blocking=True)
    x.add_(1)                       # pageable: the copy has its own bytes
    z = y[::3].to(torch.float16).float()
    w = torch.empty(100000, device="npu")[::2]
    w.copy_(torch.full((50000,), float(i)))
    assert z.cpu().equal((x - 1)[::3].half().float()), i
    assert w.cpu().eq(i).all()
    s = torch.npu.Stream()
    with torch.npu.stream(s):
        v = torch.empty(100000, device="npu").fill_(i)
        assert v[5].item() == i
    t = torch.zeros(1000, device="npu")
    for k in range(4):
        t = t.resize_(1000 * (k + 2))
        t[-1000:].fill_(k + 1)
    assert t[1000:].view(4, 1000).mean(1).tolist() == [1, 2, 3, 4]
