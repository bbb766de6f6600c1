# SPDX-License-Identifier: Apache-2.0
import json, torch, torch_npu
from torch.nn import functional as F
x, w, b = (torch.ones(*s, device="npu") for s in ((4, 16), (16, 16), (16,)))
q = torch.ones(1, 2, 8, 16, device="npu", requires_grad=True)
for _ in range(3):
    torch.mm(x, w), torch.addmm(b, x, w), x.sum(), x.sum(1)
    F.scaled_dot_product_attention(q, q, q).sum().backward()
    y = x.clone().requires_grad_()
    F.layer_norm(y, (16,), b, b).sum().backward()
keys = ("overload", "rung", "calls", "bytes")
print(json.dumps(sorted([[str(r[k]) for k in keys] for r in torch.npu.fallback_stats(native=True)])))
