# SPDX-License-Identifier: Apache-2.0
"""cross_entropy_loss in one call of the driver, with every host kernel, with the fast ones and made of other kinds.

What watches or transforms a program gets the parts that PyTorch makes it of; torch.compile: test_compile.py.
"""

import nn_script
import pytest

pytestmark = pytest.mark.machines
script = nn_script.script

VALUES = """
classes = torch.tensor([0, 2, 4, 1])
for dtype in DTYPES:
    r = data(dtype)
    for how in ("none", "mean", "sum"):
        for smoothing in (0.0, 0.2):
            options = dict(reduction=how, label_smoothing=smoothing)
            same(lambda x, t: F.cross_entropy(x, t, **options), r(4, 5), classes)
            same(lambda x, t, w: F.cross_entropy(x.t(), t, w.detach(), ignore_index=2, **options),
                 r(5, 4), classes, r(5).abs())
            same(lambda x, t: F.cross_entropy(x, t, **options), r(2, 5, 3), torch.randint(5, (2, 3)))
            same(lambda x, t, w: F.cross_entropy(x, t.softmax(1).detach(), w.detach(), **options),
                 r(2, 5, 3), r(2, 5, 3), r(5).abs())
    same(lambda x, t: F.cross_entropy(x, t), r(5), torch.tensor(2))
    same(lambda x, t: F.cross_entropy(x, t), r(0, 5), classes[:0])
    same(lambda x, t: F.cross_entropy(x, t), r(4, 5), classes * 0 - 100)
    same(lambda x, t: F.cross_entropy(x, t.softmax(1)), r(4, 5), r(4, 5))  # of the target too
for target in (classes + 9, classes[:3]):
    errors = []
    for device in ("cpu", "npu"):
        try:
            F.cross_entropy(torch.zeros(4, 5, device=device), target.to(device))
        except Exception as e:
            errors.append(type(e))
    assert len(errors) == 2 and errors[0] is errors[1], errors
"""
# Accelerators take int32 classes, PyTorch's CPU does not (ops/wide.yaml).
INT32 = """
images, places = torch.randn(2, 5, 3, 3), torch.randint(5, (2, 3, 3))
for x, t in ((torch.randn(4, 5), classes), (images, places), (torch.randn(2, 5, 3), torch.randint(5, (2, 3)))):
    for f in (F.cross_entropy, F.nll_loss, lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=2)):
        found = []
        for target in (t.int().npu(), t.npu(), t):
            leaf = x.clone().to(target.device).requires_grad_()
            f(leaf, target).backward()
            found.append((f(leaf, target).detach().cpu(), leaf.grad.cpu()))
        for a, b, c in zip(*found):
            torch.testing.assert_close(a, b)
            torch.testing.assert_close(a, c)
    try:
        F.nll_loss(x.npu(), t.int().npu() + 9)
    except (IndexError, RuntimeError) as error:
        assert "out of bounds" in str(error), error
    else:
        raise AssertionError("class 9 of 5")
"""
KINDS = """
rows = {row["kind"]: row for row in _C._native_calls()["aten::cross_entropy_loss"] if row[RUNG]}
assert set(rows) == {"cross_entropy", "cross_entropy_grad"}, rows
"""


def test_every_kernel(script):
    script(VALUES + KINDS.replace("RUNG", "1") + INT32)


def test_fast_kernels(script):
    script(VALUES + INT32, NPU_HOST_KERNELS="fast")


def test_made_of_other_kinds(script):
    disabled = "cross_entropy,cross_entropy_grad"
    script(VALUES + KINDS.replace("RUNG", "3"), NPU_DISABLE_KIND=disabled)


def test_who_transforms_it_gets_the_parts(script):
    script("""
classes = torch.tensor([0, 2, 4, 1])
x = torch.randn(4, 5, dtype=torch.float64, device="npu", requires_grad=True)
loss = lambda x: F.cross_entropy(x, classes.npu(), label_smoothing=0.1)
assert torch.autograd.gradcheck(loss, x) and torch.autograd.gradgradcheck(loss, x)
torch.testing.assert_close(
    torch.func.vmap(torch.func.grad(lambda x, t: F.cross_entropy(x, t)))(x.detach(), classes.npu()).cpu(),
    torch.func.vmap(torch.func.grad(lambda x, t: F.cross_entropy(x, t)))(x.detach().cpu(), classes))
torch.func.jvp(loss, (x.detach(),), (x.detach(),))
with torch.autocast("npu", dtype=torch.bfloat16):
    assert F.cross_entropy(x.detach().bfloat16(), classes.npu()).dtype == torch.float32
from torch.fx.experimental.proxy_tensor import make_fx
graph = make_fx(loss)(x.detach())
assert any("log_softmax" in str(node.target) for node in graph.graph.nodes)
""")
