# SPDX-License-Identifier: Apache-2.0
def body(x):
    return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x) * 2

function = compiled(body)
x = torch.ones(500, device="npu")
torch.manual_seed(2)
wanted = [body(x) for _ in range(8)]
torch.manual_seed(2)
torch.npu.synchronize()
streams, got = [torch.npu.Stream(), torch.npu.Stream()], []
for turn in range(8):
    with torch.npu.stream(streams[turn % 2]):
        got.append(function(x))
torch.npu.synchronize()
for g, e in zip(got, wanted):
    assert torch.equal(g.cpu(), e.cpu())
assert graphs()[1] > 2, graphs()
