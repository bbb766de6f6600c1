# SPDX-License-Identifier: Apache-2.0
"""Kinds and their decompositions on tensors without dimensions, without rows, without classes and of one
element: on the host driver with every kernel, and on the discrete driver, which has none of these kinds."""

import pytest
from faulty import discrete_environment

CODE = """
import math, torch, torch_npu
import torch.nn.functional as F

found = []

def same(name, function, *given):
    results = []
    for device in ("cpu", "npu"):
        leaves = [x.detach().clone().to(device).requires_grad_(x.requires_grad) for x in given]
        try:
            out = function(*leaves)
            own = [x for x in leaves if x.requires_grad]
            grads = torch.autograd.grad(out.sum(), own) if own else ()
            results.append([x.detach().cpu() for x in (out, *grads)])
        except RuntimeError as error:
            results.append(str(error).split("\\n")[0])
    a, b = results
    if isinstance(a, str) or isinstance(b, str):
        ok = isinstance(a, str) and isinstance(b, str) and "INTERNAL" not in b
    else:
        ok = all(torch.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True) and x.shape == y.shape
                 for x, y in zip(a, b))
    if not ok:
        found.append((name, [tuple(x.shape) for x in given], a, b))

draw = torch.Generator().manual_seed(4)
def rand(*size): return torch.rand(size, generator=draw) * 0.9 + 0.05
SIZES = ((), (1,), (0,), (0, 3), (3, 0), (1, 1), (2, 3))
LOSSES = {
    "mse": F.mse_loss, "smooth_l1": F.smooth_l1_loss, "huber": F.huber_loss,
    "soft_margin": F.soft_margin_loss, "bce": F.binary_cross_entropy,
    "bce_with_logits": F.binary_cross_entropy_with_logits,
}
for size in SIZES:
    x, y = rand(*size), rand(*size)
    same("flip", lambda t: t.flip(0), x)
    same("flip of none", lambda t: torch.flip(t, []), x)
    if size:
        same("roll", lambda t: t.roll(5, -1), x)
    for tests in ((), (0,), (1,), (4,)):
        for invert in (False, True):
            same("isin", lambda t, e: torch.isin(t, e, invert=invert), x, rand(*tests))
    if len(size) == 2 and x.numel():  # PyTorch's CPU divides by zero there
        same("weight_norm", lambda v, g: torch._weight_norm(v, g, 0),
             x.requires_grad_(), rand(size[0], 1).requires_grad_())
    for name, loss in LOSSES.items():
        target = y.sub(0.5).sign() if name == "soft_margin" else y
        for reduction in ("none", "sum", "mean"):
            same(name, lambda a, b: loss(a, b, reduction=reduction), rand(*size).requires_grad_(), target)
            if size == (2, 3):
                same(name + " strided", lambda a, b: loss(a.t(), b.t(), reduction=reduction),
                     rand(*size).requires_grad_(), target)
for samples in (0, 1, 3):
    for classes in (0, 1, 4):
        x = rand(samples, classes)
        for reduction in ("none", "sum", "mean"):
            for loss, target in ((F.multi_margin_loss, torch.zeros(samples, dtype=torch.int64)),
                                 (F.multilabel_margin_loss, torch.full((samples, classes), -1))):
                if samples or not classes or reduction == "none":
                    same(loss.__name__, lambda a, b: loss(a, b, reduction=reduction), x.requires_grad_(), target)
        if samples == 0 and classes:
            # PyTorch's CPU leaves these numbers unwritten.
            for reduction, wanted in (("sum", 0.0), ("mean", math.nan)):
                leaf = x.detach().npu().requires_grad_()
                target = torch.zeros(0, dtype=torch.int64, device="npu")
                weight = torch.ones(classes, device="npu")
                out = F.multi_margin_loss(leaf, target, weight=weight, reduction=reduction)
                out.backward()
                ok = torch.allclose(out.detach().cpu(), torch.tensor(wanted), equal_nan=True)
                if not ok or leaf.grad.shape != x.shape:
                    found.append(("multi_margin_loss", x.shape, reduction, out.item()))
assert not found, (len(found), found[:5])
"""


@pytest.mark.parametrize("driver", ["host", "discrete"])
def test_edges(run_python, driver):
    variables = {"NPU_HOST_KERNELS": "all", "NPU_FALLBACK": "silent"}
    run_python(CODE, **(variables if driver == "host" else discrete_environment(kernels=False)))
