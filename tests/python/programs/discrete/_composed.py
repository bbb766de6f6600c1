# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
import torch.nn.functional as F
aten = torch.ops.aten
torch.manual_seed(0)

def same(fn, *args, tolerance=1e-5, grad=False):
    found = []
    for device in ("cpu", "npu"):
        moved = [a.to(device) if isinstance(a, torch.Tensor) else a for a in args]
        leaves = [a.requires_grad_() for a in moved if grad and isinstance(a, torch.Tensor)]
        results = fn(*moved)
        results = results if isinstance(results, tuple) else (results,)
        if grad:
            results += torch.autograd.grad(results[0].square().sum(), leaves)
        found.append(results)
    for want, got in zip(*found):
        if not isinstance(want, torch.Tensor):
            assert want == got, (want, got)
            continue
        assert got.dtype == want.dtype and (grad or got.stride() == want.stride()), (got.stride(), want.stride())
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=tolerance, atol=tolerance)

x, y = torch.randn(4, 3), torch.randn(4, 3)
same(torch.trace, x)
same(torch.equal, x, x.clone())
same(torch.equal, x, y)
same(torch.equal, x, x[:2])
same(torch.equal, x.t(), x.t().contiguous())
same(torch.equal, torch.full((2,), float("nan")), torch.full((2,), float("nan")))
same(lambda x: torch.channel_shuffle(x, 2), torch.randn(2, 6, 3, 3))
same(lambda x: torch.channel_shuffle(x, 3), torch.randn(2, 6, 3, 3).to(memory_format=torch.channels_last))
same(torch.linalg.cross, x, y)
same(lambda a, b: torch.linalg.cross(a, b, dim=0), x[:3], y[:3])
for p in (1.0, 2.0, 3.0):
    same(lambda x: torch.renorm(x, p, 0, 0.5), x)
    same(lambda x: torch.renorm(x, p, -1, 5.0), x)
for p in (0.0, 1.0, 1.5, 2.0, float("inf")):
    same(lambda a, b: aten._cdist_forward(a, b, p, None), torch.randn(2, 4, 3), torch.randn(2, 5, 3))
    same(lambda a: aten._pdist_forward(a, p), x)
for dtype in (torch.float32, torch.bfloat16):
    same(lambda x: aten.fake_quantize_per_tensor_affine_cachemask(x, 0.1, 3, -20, 20), (x * 3).to(dtype))
    same(lambda x, s, z: aten.fake_quantize_per_channel_affine_cachemask(x, s, z, 1, -20, 20),
         (x * 3).to(dtype), torch.rand(3) / 9 + 0.01, torch.zeros(3))
for on in (0, 1):
    same(lambda x, s, z, e: aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(x, s, z, e, -20, 20),
         x * 3, torch.tensor([0.1]), torch.tensor([3], dtype=torch.int32), torch.tensor([on]))
r = lambda *s: torch.randn(*s, dtype=torch.float64)
same(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
     r(2, 3, 6, 8), r(2, 3, 6, 8), r(2, 3, 6, 8), tolerance=1e-9, grad=True)
f = lambda *s: torch.randn(*s)
same(F.scaled_dot_product_attention, f(2, 3, 6, 8), f(2, 3, 7, 8), f(2, 3, 7, 4), grad=True)
