# SPDX-License-Identifier: Apache-2.0
"""Drivers that lack abilities: operands are copied first (rung 2), or the call goes down."""

import pytest

CODE = """
import itertools, torch, torch_npu
from torch_npu import _C
torch.manual_seed(0)

def views(a):
    yield a
    yield a.t().contiguous().t()
    yield torch.stack([a, a], -1)[..., 0]
    yield a[:1].expand_as(a)
    yield torch.cat([a.flatten()[:1], a.flatten()])[1:].view_as(a)

def check(fn, *hosts):
    want = fn(*hosts)
    got = fn(*[h.npu() if isinstance(h, torch.Tensor) and h.dim() else h for h in hosts])
    assert got.dtype == want.dtype and got.shape == want.shape
    torch.testing.assert_close(got.cpu(), want, equal_nan=True)

UNARY = [torch.exp, torch.neg, torch.sigmoid, torch.relu, torch.sqrt, torch.abs, torch.floor, torch.tanh, torch.sign,
         torch.nn.functional.silu, torch.nn.functional.gelu, lambda t: t.clamp(-0.5, 0.5), lambda t: t.pow(2)]
BINARY = [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.eq, torch.lt, torch.ge,
          torch.atan2, lambda a, b: torch.add(a, b, alpha=2), lambda a, b: a.clone().mul_(b)]
for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
    base, other = torch.randn(5, 7).to(dtype), (torch.rand(5, 7) + 0.5).to(dtype)
    for fn in UNARY:
        for a in views(base):
            check(fn, a)
    for fn in BINARY:
        for a, b in zip(views(base), reversed(list(views(other)))):
            check(fn, a, b)
        if fn not in (torch.maximum, torch.minimum, torch.atan2):
            check(fn, base, 1.5)
        check(fn, base, torch.tensor(2.0))
        check(fn, base, torch.randn(7))
for fn in (torch.add, torch.mul, torch.eq, torch.bitwise_and, torch.maximum):
    check(fn, torch.arange(12).view(3, 4), torch.arange(4))
    check(fn, torch.arange(12).view(3, 4), torch.arange(4, dtype=torch.int32))
check(torch.addcmul, torch.randn(3, 4), torch.randn(4), torch.randn(3, 1))
check(torch.lerp, torch.randn(3, 4), torch.randn(3, 4), torch.rand(4))
x = torch.randn(4, 4)
y = x.npu()
y.t().add_(y.t())
torch.testing.assert_close(y.cpu(), x + x)
out = torch.zeros(4, 8, device="npu")
torch.exp(y, out=out[:, ::2])
torch.testing.assert_close(out[:, ::2].cpu(), torch.exp(y.cpu()))
assert not out[:, 1::2].any().item()
mended = [r for r in _C._fallback_rows() if r["rung"] == 2]
print("mended", len(mended), sorted({r["reason"] for r in mended}))
assert bool(mended) == MENDED
assert all(r["reason"] and r["calls"] for r in mended)
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_values_hold_whatever_the_driver_lacks(run_python, seed):
    run_python(
        CODE.replace("MENDED", "True"),
        NPU_HOST_KERNELS="all",
        NPU_HOST_DECLINE=f"90,{seed}",
    )


def test_nothing_is_mended_for_a_driver_that_can_do_all(run_python):
    run_python(CODE.replace("MENDED", "False"), NPU_HOST_KERNELS="all")


def test_wrong_value_is_refused(run_python):
    done = run_python(
        "import torch, torch_npu; torch.ones(1).npu()", check=False, NPU_HOST_DECLINE="often"
    )
    assert done.returncode != 0
    assert "NPU_HOST_DECLINE=often" in done.stderr and "<percent>,<seed>" in done.stderr
