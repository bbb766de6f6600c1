# SPDX-License-Identifier: Apache-2.0
"""In place, out of place, in several dtypes, in lists of results."""
def body(x):
    a = torch.rand_like(x) + torch.randn_like(x)
    b = torch.bernoulli(torch.full_like(x, 0.3))
    c = torch.randint(0, 1000, (7,), device="npu")
    d = torch.empty(5, 6, device="npu").exponential_(2.0)
    e = torch.zeros(8, device="npu", dtype=torch.float64).normal_()
    f = torch.nn.functional.dropout(x.half(), 0.5)
    return a, b, c, d, e, f, torch.randperm(9, device="npu")

x = torch.arange(12.0).reshape(3, 4).npu()
torch.manual_seed(7)
wanted = [t for _ in range(4) for t in body(x)]
torch.manual_seed(7)
function = compiled(body)
same([t for _ in range(4) for t in function(x)], wanted)
assert total("replayed") >= 2
