# SPDX-License-Identifier: Apache-2.0
x = torch.rand(64, 64).npu()
for _ in range(20):
    torch.softmax(x, 1); x @ x; torch.cumsum(x, 0); x.sort(1)
    junk = [torch.rand(16).pin_memory() for _ in range(4)]  # takes pinned blocks that were given back too early
    for t in junk:
        t.fill_(0)
torch.npu.synchronize()
assert torch.nonzero(x > 0.5).cpu().equal(torch.nonzero(x.cpu() > 0.5))
values = torch.randint(5, (40,))
assert torch.unique(values.npu(), return_counts=True)[1].cpu().equal(torch.unique(values, return_counts=True)[1])
assert torch.bincount(values.npu()).cpu().equal(torch.bincount(values))
assert x[x > 0.5].cpu().equal(x.cpu()[x.cpu() > 0.5])
torch.manual_seed(1); a = torch.randperm(50, device="npu")
assert a.sort()[0].cpu().equal(torch.arange(50))
faults = broken()
assert not faults, faults
print("done")
