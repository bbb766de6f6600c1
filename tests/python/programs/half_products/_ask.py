# SPDX-License-Identifier: Apache-2.0
import json, torch, torch_npu
from torch.nn import functional as F
def calls(fn):
    torch.npu.reset_fallback_stats()
    fn()
    return sum(r["wide_calls"] for r in torch.npu.fallback_stats(native=True))
def ones(*sizes, dtype):
    return torch.ones(sizes, dtype=dtype, device="npu")
def product(half, a, b):
    a, b = ones(*a, dtype=half), ones(*b, dtype=half)
    return lambda: a @ b
def attention(half):
    q = ones(2, 2, 8, 16, dtype=half).requires_grad_()
    return lambda: F.scaled_dot_product_attention(q, q, q).sum().backward()
answers = {}
for word, half in {"float16": torch.float16, "bfloat16": torch.bfloat16}.items():
    x, w = ones(1, 4, 8, 8, dtype=half), ones(4, 4, 3, 3, dtype=half)
    seen = {
        "large": calls(product(half, (64, 64), (64, 64))),
        "batch": calls(product(half, (8, 16, 16), (8, 16, 16))),
        "small": calls(product(half, (8, 8), (8, 8))),
        "few rows": calls(product(half, (2, 256), (256, 256))),
        "outer": calls(product(half, (128, 1), (1, 128))),
        "conv": calls(lambda: F.conv2d(x, w)),
        "attention": calls(attention(half)),
        "float32": calls(product(torch.float32, (64, 64), (64, 64))),
    }
    with torch.backends.mkldnn.flags(enabled=False):
        seen["without oneDNN"] = calls(product(half, (64, 64), (64, 64)))
    answers[word] = [*torch_npu._C._half_products()[word], seen]
print(json.dumps(answers))
