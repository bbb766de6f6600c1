# SPDX-License-Identifier: Apache-2.0
"""cross_entropy_loss in one call of the driver, with every host kernel, with the fast ones and without the kinds.

What watches or transforms a program gets the parts that PyTorch makes it of; torch.compile: test_compile.py.
"""

import nn_script
import pytest
from programs import program

pytestmark = pytest.mark.machines
script = nn_script.script

VALUES = program(__file__, "_values")
# Accelerators take int32 classes, PyTorch's CPU does not (ops/wide.yaml).
INT32 = program(__file__, "_int32")
# Under autocast the loss of halves is float32, and its gradient is rounded once. PyTorch's parts, which
# the CPU rung and a single sample take, round the logarithms too: they give log_softmax the half dtype.
AUTOCAST = """
classes = torch.tensor([0, 2, 4, 1])

def leaves(x, device, dtype):
    return x.to(dtype).to(device).requires_grad_()

def check(what, dtype, x, target, weight=None, parts=PARTS, **options):
    half = x.to(dtype)
    own, theirs = leaves(half, "npu", dtype), leaves(half, "cpu", torch.float32)
    w = None if weight is None else weight.npu()
    with torch.autocast("npu", dtype):
        loss = F.cross_entropy(own, target.npu(), w, **options)
    wanted = F.cross_entropy(theirs, target, None if weight is None else weight.float(), **options)
    assert loss.dtype == torch.float32, what
    ulp = torch.finfo(dtype).eps
    close = 4 * ulp if parts else 2e-6
    torch.testing.assert_close(loss.cpu(), wanted, rtol=close, atol=close)
    seed = torch.linspace(0.5, 1.5, max(1, wanted.numel())).reshape(wanted.shape)
    again = [torch.autograd.grad(l, x, seed.to(l.device), create_graph=True)[0]
             for l, x in ((loss, own), (wanted, theirs))]
    once = torch.autograd.grad(loss, own, seed.npu(), retain_graph=True)[0]
    assert once.dtype == dtype and again[0].dtype == dtype, what
    for mine in (once, again[0]):
        torch.testing.assert_close(mine.detach().float().cpu(), again[1].detach(),
                                   rtol=4 * ulp if parts else ulp, atol=4 * ulp if parts else 1e-6)
    if x.numel():
        second = [torch.autograd.grad(g.float().square().sum(), x)[0] for g, x in zip(again, (own, theirs))]
        torch.testing.assert_close(second[0].float().cpu(), second[1], rtol=8 * ulp, atol=4 * ulp)

for dtype in (torch.bfloat16, torch.float16):
    x, w = torch.randn(4, 5), torch.rand(5) + 0.1
    for how in ("none", "mean", "sum"):
        for smoothing in (0.0, 0.2):
            options = dict(reduction=how, label_smoothing=smoothing)
            check("plain", dtype, x, classes, **options)
            check("weights", dtype, x, classes, w.to(dtype), ignore_index=2, **options)
            check("float32 weights", dtype, x, classes, w, **options)
            check("probabilities", dtype, x, torch.rand(4, 5), w, **options)
        check("images", dtype, torch.randn(2, 5, 3), torch.randint(5, (2, 3)), reduction=how)
    check("strided", dtype, torch.randn(5, 4).t(), classes)
    check("no batch", dtype, torch.randn(5), torch.tensor(2), parts=True)
    check("no samples", dtype, torch.randn(0, 5), classes[:0], reduction="sum")
    with torch.autocast("npu", dtype):
        assert F.cross_entropy(x.npu(), classes.npu()).dtype == torch.float32
        assert F.cross_entropy(x.double().npu(), classes.npu()).dtype == torch.float64
"""
KINDS = """
rows = {row["kind"]: row for row in _C._native_calls()["aten::cross_entropy_loss"] if row[RUNG]}
assert set(rows) == {"cross_entropy", "cross_entropy_grad"}, rows
"""


def test_every_kernel(script):
    script(VALUES + KINDS.replace("RUNG", "1") + INT32)


def test_fast_kernels(script):
    script(VALUES + INT32 + AUTOCAST.replace("PARTS", "True"), NPU_HOST_KERNELS="fast")


def test_autocast_keeps_the_kind_and_makes_no_float32_logits(script):
    script(AUTOCAST.replace("PARTS", "False") + KINDS.replace("RUNG", "1"))
    script("""
big = torch.randn(1024, 4096, dtype=torch.bfloat16, device="npu", requires_grad=True)
target = torch.randint(4096, (1024,), device="npu")
torch.npu.reset_peak_memory_stats()
before = torch.npu.memory_allocated()
with torch.autocast("npu", torch.bfloat16):
    F.cross_entropy(big, target).backward()
grown = torch.npu.max_memory_allocated() - before
assert grown < 1.5 * big.nbytes, (grown, big.nbytes)  # the gradient, which is no float32 either
""")


def test_a_driver_without_the_kinds_runs_pytorchs_parts(script):
    none = 'assert "aten::cross_entropy_loss" not in _C._native_calls()\n'
    script(
        VALUES + AUTOCAST.replace("PARTS", "True") + none,
        NPU_DISABLE_KIND="cross_entropy,cross_entropy_grad",
    )


def test_who_transforms_it_gets_the_parts(script):
    script(program(__file__, "_who_transforms_it_gets_the_parts"))
