# SPDX-License-Identifier: Apache-2.0
import torch, torch_npu
import torch.nn.functional as F
from torch_npu import _C
torch.manual_seed(0)
aten = torch.ops.aten
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9, torch.bfloat16: 4e-2, torch.float16: 6e-3}

def calls(overload):
    rows = _C._native_calls().get("aten::" + overload, [])
    return tuple(sum(row[rung] for row in rows) for rung in (1, 2, 3))

def on(device, fn, args, grad):
    args = [a.clone().to(device) if isinstance(a, torch.Tensor) else a for a in args]
    leaves = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    for leaf in leaves if grad else ():
        leaf.requires_grad_()
    out = fn(*args)
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    wanted = [o for o in outs if o.requires_grad]
    if grad:
        torch.manual_seed(1)
        seeds = [torch.randn(o.shape).to(o.dtype).to(device) for o in wanted]
        torch.autograd.backward(wanted, seeds)
    return outs + [leaf.grad for leaf in leaves if grad]

def same(fn, *args, grad=True, tolerance=None):
    for want, got in zip(on("cpu", fn, args, grad), on("npu", fn, args, grad), strict=True):
        if want is None:
            assert got is None
            continue
        assert got.device.type == "npu" and got.dtype == want.dtype, (got.dtype, want.dtype)
        assert got.stride() == want.stride(), (got.shape, got.stride(), want.stride())
        t = tolerance or TOLERANCE[want.dtype]
        torch.testing.assert_close(got.detach().cpu(), want.detach(), rtol=t, atol=t, equal_nan=True)

def ran(*overloads, rung=1):
    for overload in overloads:
        assert calls(overload)[rung - 1] > 0, (overload, calls(overload))

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
def data(dtype):
    return lambda *sizes: torch.randn(*sizes).to(dtype)
