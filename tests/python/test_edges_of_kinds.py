# SPDX-License-Identifier: Apache-2.0
"""Kinds and their decompositions on tensors without dimensions, without rows, without classes and of one
element: on the host driver as it is and with every kernel, and on the discrete driver, which has none of
these kinds."""

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
            none = torch.zeros(0, dtype=torch.int64, device="npu")
            weight = torch.ones(classes, device="npu")
            calls = {
                "weighted": lambda a, how: F.multi_margin_loss(a, none, weight=weight, reduction=how),
                "plain": lambda a, how: F.multi_margin_loss(a, none, reduction=how),
                "half": lambda a, how: F.multi_margin_loss(a.half(), none, reduction=how),
                "multilabel": lambda a, how: F.multilabel_margin_loss(a, none.expand(classes, 0).t(), reduction=how),
            }
            for name, call in calls.items():
                for reduction, wanted in (("sum", 0.0), ("mean", math.nan)):
                    used = [torch.full((64,), 7.0, device="npu") for _ in range(9)]
                    del used  # memory that is not zero
                    leaf = x.detach().npu().requires_grad_()
                    out = call(leaf, reduction)
                    out.backward()
                    ok = torch.allclose(out.detach().cpu().float(), torch.tensor(wanted), equal_nan=True)
                    if not ok or leaf.grad.shape != x.shape:
                        found.append((name, x.shape, reduction, out.item()))
assert not found, (len(found), found[:5])
"""


SETTINGS = {
    "default": {"NPU_FALLBACK": "silent"},
    "every kernel": {"NPU_HOST_KERNELS": "all", "NPU_FALLBACK": "silent"},
    "discrete": None,
}


def variables(setting):
    return SETTINGS[setting] or discrete_environment(kernels=False)


@pytest.mark.parametrize("setting", SETTINGS)
def test_edges(run_python, setting):
    run_python(CODE, **variables(setting))


def test_a_loss_of_no_samples_falls_back_as_any_other(run_python):
    code = """
        import torch, torch_npu
        x, t = torch.zeros(0, 3).npu(), torch.zeros(0, dtype=torch.int64).npu()
        try:
            torch.nn.functional.multi_margin_loss(x, t)
        except RuntimeError as error:
            assert "aten::multi_margin_loss" in str(error) and "ERR01007" in str(error), error
        else:
            raise SystemExit("no error")
    """
    run_python(code, NPU_FALLBACK="error")


ADDBMM = """
import torch, torch_npu
a, b = torch.arange(24.).reshape(2, 3, 4), torch.arange(40.).reshape(2, 4, 5)
for size in ((), (5,), (1, 5), (3, 1), (3, 5)):
    results = []
    for device in ("cpu", "npu"):
        x = torch.ones(size, device=device)
        y = x.addbmm_(a.to(device), b.to(device), beta=2, alpha=3)
        assert y is x and x.shape == (3, 5), (size, device, x.shape)
        results.append(x.cpu())
    wanted = 2 + 3 * torch.bmm(a.double(), b.double()).sum(0)
    assert all(torch.equal(x.double(), wanted) for x in results), size
x = torch.ones(4, 5, device="npu")
try:
    x.addbmm_(a.npu(), b.npu())
except RuntimeError as error:
    assert "INTERNAL" not in str(error) and x.shape == (4, 5), error
else:
    raise SystemExit("no error")
"""


@pytest.mark.parametrize("setting", SETTINGS)
def test_addbmm_in_place_resizes_its_tensor_as_on_the_cpu(run_python, setting):
    run_python(ADDBMM, **variables(setting))
