# SPDX-License-Identifier: Apache-2.0
"""Convolution, softmax, norms, losses and attention on the driver's kinds, against PyTorch's CPU.

In child processes with NPU_HOST_KERNELS=all. Forward and gradients, dtypes and strides; which rung
ran is read off the calls' counters. NPU_DISABLE_KIND takes a kind away: then rung 3 makes it of
others where src/compose knows how, and the CPU rung does the rest.
"""

import pytest

pytestmark = pytest.mark.machines

PREAMBLE = """
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
    for want, got in zip(on("cpu", fn, args, grad), on("npu", fn, args, grad)):
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
"""


@pytest.fixture
def script(run_python):
    def run(code, **variables):
        return run_python(PREAMBLE + code, **{"NPU_HOST_KERNELS": "all", **variables})

    return run


def test_softmax(script):
    script("""
for dtype in DTYPES:
    r = data(dtype)
    for dim in (0, 1, -1):
        same(lambda x: torch.softmax(x, dim), r(3, 4, 5))
        same(lambda x: torch.log_softmax(x, dim), r(3, 4, 5).transpose(0, 2))
    same(lambda x: torch.softmax(x, 0), r(1)[0])
    same(lambda x, m: aten._masked_softmax(x, m, 1, 2), r(3, 4), torch.rand(3, 4) > 0.7, grad=False)
ran("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data")
ran("_masked_softmax")
x, out = torch.randn(3, 4), torch.empty(0)
aten._softmax.out(x.npu(), 1, False, out=(got := out.npu()))
torch.testing.assert_close(got.cpu(), torch.softmax(x, 1))
ran("_softmax.out")
""")


def test_norms(script):
    script("""
for dtype in DTYPES:
    r = data(dtype)
    same(lambda x, w, b: F.layer_norm(x, [4, 5], w, b), r(3, 4, 5), r(4, 5), r(4, 5))
    same(lambda x: F.layer_norm(x.transpose(0, 1), [5]), r(3, 4, 5))
    same(lambda x, w, b: F.group_norm(x, 2, w, b), r(3, 4, 5, 6), r(4), r(4))
    channels_last = r(3, 4, 5, 6).to(memory_format=torch.channels_last)
    same(lambda x, w, b: F.group_norm(x, 2, w, b), channels_last, r(4), r(4))
    same(lambda v, g: aten._weight_norm_interface(v, g, 0), r(3, 4), r(3, 1))
    for x in (r(3, 4, 5, 6), channels_last, r(6, 4)):
        same(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, r(4), r(4))
        def train(x, w, b, mean, var):
            mean, var = mean.detach().clone(), var.detach().clone()
            return F.batch_norm(x, mean, var, w, b, True), mean, var
        same(train, x, r(4), r(4), r(4), r(4).abs())
        same(lambda x, m, v: F.batch_norm(x, m.detach(), v.detach()), x, r(4), r(4).abs())
half, w = torch.randn(3, 4, 5).bfloat16(), torch.randn(5)
same(lambda x, w: aten.native_layer_norm(x, [5], w, w, 1e-5), half, w, grad=False)
ran("native_layer_norm", "native_layer_norm_backward", "native_group_norm")
ran("native_group_norm_backward", "native_batch_norm", "native_batch_norm_backward")
ran("_weight_norm_interface", "_weight_norm_interface_backward")
""")


def test_rms_norm(script):
    code = """
for dtype in DTYPES:
    r = data(dtype)
    same(lambda x, w: F.rms_norm(x, [4, 5], w), r(3, 4, 5), r(4, 5))
    same(lambda x: F.rms_norm(x.transpose(0, 1), [5], eps=0.1), r(3, 4, 5))
    same(lambda x, w: F.rms_norm(x, [5], w), r(3, 4, 10)[..., ::2], r(5))
    same(lambda x: F.rms_norm(x, [5]), r(3, 5) * 1e-4)  # eps matters
    same(lambda x, w: F.rms_norm(x, [5], w), r(0, 5), r(5))
same(lambda x, w: F.rms_norm(x, [5], w), torch.randn(3, 5).bfloat16(), torch.randn(5), grad=False)
x = torch.randn(3, 5, dtype=torch.float64, device="npu", requires_grad=True)
w = torch.randn(5, dtype=torch.float64, device="npu", requires_grad=True)
norm = lambda x, w: F.rms_norm(x, [5], w)
assert torch.autograd.gradcheck(norm, (x, w)) and torch.autograd.gradgradcheck(norm, (x, w))
"""
    script(code + 'ran("_fused_rms_norm", "_fused_rms_norm_backward")')
    script(code, NPU_HOST_KERNELS="fast")
    made = 'ran("_fused_rms_norm", "_fused_rms_norm_backward", rung=3)'
    script(code + made, NPU_DISABLE_KIND="rms_norm,rms_norm_grad")


def test_batch_norm_evaluated_and_updated(script):
    script("""
for dtype in DTYPES:
    r = data(dtype)
    channels_last = r(3, 4, 5, 6).to(memory_format=torch.channels_last)
    for x in (r(3, 4, 5, 6), channels_last, r(6, 4)):
        same(lambda x, w, b, m, v: F.batch_norm(x, m.detach(), v.detach(), w, b),
             x, r(4), r(4), r(4), r(4).abs() + 0.5)
        same(lambda x, m, v: F.batch_norm(x, m.detach(), v.detach()), x, r(4), r(4).abs() + 0.5)
        def update(x, w, b, m, v):
            m, v = m.detach().clone(), v.detach().clone()
            out, mean, rstd, reserve = aten._batch_norm_with_update(x, w, b, m, v, 0.3, 1e-3)
            assert reserve.numel() == 0 and reserve.dtype == torch.uint8
            return out, m, v
        same(update, x, r(4), r(4), r(4), r(4).abs() + 0.5)
        same(lambda x, w, b, m, v: aten._batch_norm_no_update(
             x, w, b, m.detach(), v.detach(), 0.3, 1e-3)[0],
             x, r(4), r(4), r(4), r(4).abs() + 0.5)
    for wanted in ((True, False, False), (False, True, True)):
        back = lambda g, x, w, m, v: [
            t for t in aten.native_batch_norm_backward(g, x, w, m, v, None, None, False, 0.1, wanted)
            if t is not None]
        same(back, r(3, 4, 5), r(3, 4, 5), r(4), r(4), r(4).abs(), grad=False)
half, w = torch.randn(3, 4, 5).bfloat16(), torch.rand(4)
same(lambda x, w: F.batch_norm(x, w.detach(), w.detach(), w, w), half, w)
ran("native_batch_norm_backward", "_batch_norm_with_update", "_batch_norm_no_update")
ran("batch_norm_backward")
assert all(row[1] for row in _C._native_calls()["aten::native_batch_norm_backward"][:2])
""")


def test_synchronised_batch_norm(script):
    script("""
for dtype in DTYPES:
    for shape in ((6, 4), (6, 4, 5), (6, 4, 2, 3)):
        x, w, b, g = (data(dtype)(*s) for s in (shape, (4,), (4,), shape))
        wide = [t.double().requires_grad_() for t in (x, w, b)]
        kept = [torch.zeros(4).double(), torch.ones(4).double()]
        expected = F.batch_norm(wide[0], *kept, *wide[1:], training=True, momentum=0.1)
        expected.backward(g.double())
        stat = torch.float64 if dtype == torch.float64 else torch.float32
        parts, grads = (t.npu().split([1, 5]) for t in (x, g))
        running = [torch.zeros(4, dtype=stat).npu(), torch.ones(4, dtype=stat).npu()]
        stats = [torch.batch_norm_stats(p, 1e-5) for p in parts]
        means, rstds = (torch.stack(s) for s in zip(*stats))
        assert means.dtype == stat
        counts = torch.tensor([float(p.numel() // 4) for p in parts]).npu()
        mean, rstd = torch.batch_norm_gather_stats_with_counts(
            parts[0], means, rstds, *running, 0.1, 1e-5, counts)
        out = torch.cat([torch.batch_norm_elemt(p, w.npu(), b.npu(), mean, rstd, 1e-5) for p in parts])
        sums = [torch.batch_norm_backward_reduce(gi, p, mean, rstd, w.npu(), True, True, True)
                for gi, p in zip(grads, parts)]
        dy, dy_x, dw, db = (sum(column) for column in zip(*sums))
        dx = torch.cat([
            torch.batch_norm_backward_elemt(gi, p, mean, rstd, w.npu(), dy, dy_x, counts.int())
            for gi, p in zip(grads, parts)])
        assert out.dtype == dx.dtype == dw.dtype == db.dtype == dtype
        got = (out, *running, dx, dw, db)
        for got, want in zip(got, (expected.detach(), *kept, *(t.grad for t in wide))):
            t = TOLERANCE[dtype] * (4 if dtype.itemsize == 2 else 1)
            torch.testing.assert_close(got.double().cpu(), want, rtol=t, atol=t)
ran("batch_norm_stats", "batch_norm_gather_stats_with_counts", "batch_norm_elemt")
ran("batch_norm_backward_reduce", "batch_norm_backward_elemt")
""")


def test_halves_masks_and_pairs(script):
    script("""
for dtype in DTYPES:
    r = data(dtype)
    for dim in (0, 1, -1):
        same(lambda x: F.glu(x, dim), r(4, 6, 2))
        same(lambda x: F.glu(x.transpose(0, 1), dim), r(6, 4, 2))
    same(lambda x: F.glu(x), r(0, 4))
    for x in (r(3, 4), r(4, 3).t(), r(3, 8)[:, ::2], r(0, 3)):
        same(F.logsigmoid, x)
        same(F.mish, x)
        mantissa, exponent = torch.frexp(x.npu())
        want = torch.frexp(x)
        assert mantissa.cpu().equal(want.mantissa) and exponent.cpu().equal(want.exponent)
        assert mantissa.stride() == want.mantissa.stride()
    same(lambda x, w: F.prelu(x, w), r(3, 4, 5), r(4))
    same(lambda x, w: F.prelu(x.transpose(0, 2), w), r(3, 4, 5), r(1))
    if dtype is not torch.bfloat16:
        same(torch.complex, r(3, 4), r(4), grad=False, tolerance=1e-6)
    mask = torch.rand(4, 6) > 0.4
    back = lambda g, m: aten.native_dropout_backward(g, m, 1.7)
    same(back, r(4, 6), mask, grad=False)
    same(back, r(6, 4).t(), mask, grad=False)
    same(back, r(1).expand(4, 6), mask, grad=False)
for dtype in (torch.float32, torch.float64):
    r = data(dtype)
    same(lambda a, b: torch.view_as_real(torch.complex(a, b)), r(3, 4), r(4))
    same(lambda a, b: torch.view_as_real(torch.polar(a, b)), r(3, 4).t().abs(), r(4, 3))
    x, y = r(4, 6).npu(), r(3, 4).npu()
    out = torch.empty(4, 3, dtype=dtype, device="npu")
    torch.testing.assert_close(aten.glu.out(x, 1, out=out).cpu(), F.glu(x.cpu(), 1))
    out = torch.empty(4, 6, dtype=dtype, device="npu")
    g = torch.ones(4, 3, dtype=dtype)
    aten.glu_backward.grad_input(g.npu(), x, 1, grad_input=out)
    torch.testing.assert_close(out.cpu(), aten.glu_backward(g, x.cpu(), 1))
    for fn in (torch.complex, torch.polar):
        made = torch.empty(0, dtype=dtype.to_complex(), device="npu")
        torch.testing.assert_close(fn(y, y, out=made).cpu(), fn(y.cpu(), y.cpu()))
ran("glu", "glu.out", "glu_backward", "glu_backward.grad_input", "_prelu_kernel")
ran("_prelu_kernel_backward", "complex", "complex.out", "polar", "polar.out")
ran("native_dropout_backward", "log_sigmoid_forward", "log_sigmoid_backward", "mish_backward")
out = torch.empty(3, device="npu"), torch.empty(3, dtype=torch.int32, device="npu")
torch.frexp(torch.tensor([1.5, -3, 0], device="npu"), out=out)
assert out[0].tolist() == [0.75, -0.75, 0] and out[1].tolist() == [1, 2, 0]
ran("frexp.Tensor", "frexp.Tensor_out")
grad = torch.full((2,), float("inf"), device="npu")
back = aten.native_dropout_backward(grad, torch.tensor([True, False], device="npu"), 2.0)
assert back.tolist() == [float("inf"), 0]  # dropped is 0, not NaN
""")


def test_counters_keep_their_names(script):
    # A site outlives the autograd thread's stack frame that first met it.
    script("""
x = torch.randn(4, 3, 8, 8, device="npu", requires_grad=True)
F.batch_norm(x, None, None, training=True).sum().backward()
w = torch.randn(3, 3, 3, 3, device="npu", requires_grad=True)
F.conv2d(x, w).sin().pow(2).sum().backward()
names = _C._native_calls()
assert all(name.startswith("aten::") for name in names), names
assert "aten::native_batch_norm_backward" in names
""")


def test_convolution(script):
    script("""
for dtype in DTYPES:
    r = data(dtype)
    loose = 6e-2 if dtype in (torch.bfloat16, torch.float16) else None
    for x in (r(3, 4, 5, 6), r(3, 4, 5, 6).to(memory_format=torch.channels_last)):
        for stride, padding, dilation in ((2, 1, 1), (1, 0, 2)):
            same(lambda x, w, b: F.conv2d(x, w, b, stride, padding, dilation, 2),
                 x, r(6, 2, 3, 3), r(6), tolerance=loose)
            same(lambda x, w: F.conv_transpose2d(x, w, None, stride, padding, 0, 1, dilation),
                 x, r(4, 3, 3, 3), tolerance=loose)
    same(lambda x, w, b: F.conv1d(x, w, b, padding=1), r(2, 4, 7), r(5, 4, 3), r(5), tolerance=loose)
    same(lambda x, w: F.conv3d(x, w, padding=1), r(2, 4, 5, 4, 3), r(5, 4, 3, 3, 3),
         tolerance=loose or 1e-4)
ran("convolution_overrideable", "convolution_backward_overrideable")
""")


def test_losses(script):
    script("""
for dtype in DTYPES:
    r = data(dtype)
    for how in ("none", "mean", "sum"):
        for loss in (F.mse_loss, F.smooth_l1_loss, F.huber_loss):
            same(lambda x, y: loss(x, y, reduction=how), r(4, 5), r(4, 5))
        same(lambda x, t, w: F.nll_loss(x, t, w.detach(), reduction=how, ignore_index=2),
             r(4, 5), torch.tensor([0, 2, 4, 1]), r(5).abs())
        same(lambda x, t: F.nll_loss(x, t, reduction=how), r(2, 5, 3, 4),
             torch.randint(0, 5, (2, 3, 4)))
        same(lambda x, t: F.cross_entropy(x, t, reduction=how), r(4, 5), torch.tensor([0, 2, 4, 1]))
        same(lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach(), reduction=how),
             r(4, 5), r(4, 5))
        same(lambda x, y, w: F.binary_cross_entropy(x.sigmoid(), y.sigmoid().detach(), w.detach(),
             reduction=how), r(5, 4).t(), r(4, 5), r(1, 5))
        same(lambda x, y: F.binary_cross_entropy(x, y.detach(), reduction=how), r(0, 5), r(0, 5))
        logits = F.binary_cross_entropy_with_logits
        same(lambda x, y: logits(x, y.sigmoid().detach(), reduction=how), r(4, 5), r(4, 5))
        same(lambda x, y, w, p: logits(x, y.sigmoid().detach(), w.abs().detach(),
             pos_weight=p.exp().detach(), reduction=how), r(5, 4).t(), r(5, 4).t(), r(4, 1), r(5))
        same(lambda x, y: F.soft_margin_loss(x, y.sign().detach(), reduction=how), r(4, 5), r(4, 5))
        same(lambda x, y: F.soft_margin_loss(x, y.sign().detach(), reduction=how), r(5, 4).t(), r(5, 4).t())
        same(lambda x, y: F.soft_margin_loss(x, y.detach(), reduction=how), r(0, 5), r(0, 5))
        if dtype in (torch.float32, torch.float64):
            same(lambda x, t: F.multi_margin_loss(x, t, reduction=how), r(4, 5),
                 torch.tensor([0, 2, 4, 1]))
            same(lambda x, t: F.multilabel_margin_loss(x, t, reduction=how), r(2, 3),
                 torch.tensor([[2, 0, -1], [1, -1, 0]]))
            same(lambda x, t: F.ctc_loss(x.log_softmax(-1), t, (9, 7, 4), (3, 2, 4), reduction=how),
                 r(9, 3, 6), torch.randint(1, 6, (3, 4)), tolerance=1e-4)
ran("mse_loss", "mse_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward.grad_input")
ran("huber_loss", "huber_loss_backward.out", "binary_cross_entropy", "soft_margin_loss")
ran("binary_cross_entropy_with_logits")
ran("binary_cross_entropy_backward", "soft_margin_loss_backward")
ran("nll_loss_forward", "nll_loss_backward", "nll_loss2d_forward", "nll_loss2d_backward")
ran("multi_margin_loss", "multi_margin_loss_backward", "multilabel_margin_loss_forward")
ran("multilabel_margin_loss_backward", "_ctc_loss", "_ctc_loss_backward")
x, y, g = torch.rand(3, 4), torch.rand(3, 4), torch.ones(())
for overload, args in (
    ("binary_cross_entropy.out", (x, y, None, 1)),
    ("binary_cross_entropy_backward.grad_input", (g, x, y, None, 2)),
    ("soft_margin_loss.out", (x, y, 2)),
    ("soft_margin_loss_backward.grad_input", (g, x, y, 1)),
):
    name, where = overload.split(".")
    packet = getattr(aten, name)
    fn, want = getattr(packet, where), packet(*args)
    got = torch.empty(want.shape, device="npu")
    moved = [a.npu() if isinstance(a, torch.Tensor) else a for a in args]
    assert fn(*moved, **{where: got}) is got
    torch.testing.assert_close(got.cpu(), want)
    ran(overload)
""")


def test_attention(script):
    script("""
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    r = data(dtype)
    attend = F.scaled_dot_product_attention
    for causal in (False, True):
        same(lambda q, k, v: attend(q, k, v, is_causal=causal), r(2, 3, 6, 8), r(2, 3, 6, 8), r(2, 3, 6, 8))
        same(lambda q, k, v: attend(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=causal),
             r(2, 6, 3, 8), r(2, 6, 3, 8), r(2, 6, 3, 8))
    same(lambda q, k, v, m: attend(q, k, v, attn_mask=m.detach()), r(2, 3, 6, 8), r(2, 3, 7, 8),
         r(2, 3, 7, 8), r(6, 7))
overload = "_scaled_dot_product_fused_attention_overrideable"
ran(overload, overload + "_backward")
""")


def test_cross_entropy(script):
    code = """
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
x = torch.randn(4, 5, dtype=torch.float64, device="npu", requires_grad=True)
loss = lambda x: F.cross_entropy(x, classes.npu(), label_smoothing=0.1)
assert torch.autograd.gradcheck(loss, x) and torch.autograd.gradgradcheck(loss, x)
torch.testing.assert_close(
    torch.func.vmap(torch.func.grad(lambda x, t: F.cross_entropy(x, t)))(x.detach(), classes.npu()).cpu(),
    torch.func.vmap(torch.func.grad(lambda x, t: F.cross_entropy(x, t)))(x.detach().cpu(), classes))
torch.func.jvp(loss, (x.detach(),), (x.detach(),))
wanted, = torch.autograd.grad(loss(x), x)
got, = torch.autograd.grad(torch.compile(loss, backend="aot_eager")(x), x)
torch.testing.assert_close(got, wanted)
with torch.autocast("npu", dtype=torch.bfloat16):
    assert F.cross_entropy(x.detach().bfloat16(), classes.npu()).dtype == torch.float32
from torch.fx.experimental.proxy_tensor import make_fx
graph = make_fx(loss)(x.detach())
assert any("log_softmax" in str(node.target) for node in graph.graph.nodes)
for target in (classes + 9, classes[:3], classes.int()):
    errors = []
    for device in ("cpu", "npu"):
        try:
            F.cross_entropy(torch.zeros(4, 5, device=device), target.to(device))
        except Exception as e:
            errors.append(type(e))
    assert len(errors) == 2 and errors[0] is errors[1], errors
"""
    kinds = """
rows = {row["kind"]: row for row in _C._native_calls()["aten::cross_entropy_loss"] if row[RUNG]}
assert set(rows) == {"cross_entropy", "cross_entropy_grad"}, rows
"""
    script(code + kinds.replace("RUNG", "1"))
    script(code, NPU_HOST_KERNELS="fast")
    script(code + kinds.replace("RUNG", "3"), NPU_DISABLE_KIND="cross_entropy,cross_entropy_grad")


DROPPED_ATTENTION = """
overload = "_scaled_dot_product_fused_attention_overrideable"
pair = getattr(aten, overload)
B, H, S, K, P = 2, 3, 40, 48, 0.25

def attend(q, k, v, seed=7, **options):
    torch.npu.manual_seed(seed)
    return pair(q, k, v, dropout_p=P, **options)[0]

for dtype in (torch.float32, torch.bfloat16, torch.float16):
    t = TOLERANCE[dtype]
    for causal in (False, True):
        q, k, v, g = (data(dtype)(B, H, n, 8).npu() for n in (S, K, K, S))
        # With the identity as values the output is what was kept of the probabilities.
        eye = torch.eye(K, dtype=dtype, device="npu").expand(B, H, K, K)
        kept = attend(q, k, eye, is_causal=causal) != 0
        seen = torch.ones(S, K).tril().bool() if causal else torch.ones(S, K).bool()
        assert not kept.cpu()[..., ~seen].any()
        share = kept.cpu()[..., seen].float().mean()
        assert abs(share - (1 - P)) < 0.03, share
        assert not kept[0, 0].equal(kept[0, 1]) and not kept[0, 0, -1].equal(kept[0, 0, -2])

        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = attend(*leaves, is_causal=causal)
        grads = torch.autograd.grad(out, leaves, g)
        wide = [x.double().cpu().requires_grad_() for x in (q, k, v)]
        scores = (wide[0] @ wide[1].mT / 8**0.5).masked_fill(~seen, -float("inf"))
        weights = scores.softmax(-1) * kept.cpu() / (1 - P)
        expected = weights @ wide[2]
        wanted = torch.autograd.grad(expected, wide, g.double().cpu())
        for got, want in zip((out, *grads), (expected, *wanted)):
            torch.testing.assert_close(got.detach().double().cpu(), want.detach(), rtol=2 * t, atol=2 * t)
        assert attend(*leaves, is_causal=causal).equal(out)
        assert not attend(*leaves, seed=8, is_causal=causal).equal(out)
    # The state moves on.
    torch.npu.manual_seed(7)
    draws = [pair(q, k, v, dropout_p=P)[0] for _ in range(2)]
    assert not draws[0].equal(draws[1])
everything = pair(q, k, v, dropout_p=1.0)[0]
assert everything.count_nonzero() == 0
"""


def test_attention_with_dropout(script):
    script(
        DROPPED_ATTENTION
        + """
ran(overload, overload + "_backward")
q = torch.randn(2, 3, 6, 8, device="npu", requires_grad=True)
for p, choice in ((0.0, 4), (0.1, 4), (1.0, 4)):
    assert torch._fused_sdp_choice(q, q, q, dropout_p=p) == choice
before = calls(overload)[0], calls(overload + "_backward")[0]
F.scaled_dot_product_attention(q, q, q, dropout_p=0.1).sum().backward()
assert (calls(overload)[0], calls(overload + "_backward")[0]) == (before[0] + 1, before[1] + 1)

def step(x):
    return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5).sum()

results = []
for f in (step, torch.compile(step, backend="aot_eager")):
    torch.npu.manual_seed(3)
    q.grad = None
    f(q).backward()
    results.append(q.grad)
torch.testing.assert_close(*results)
"""
    )


def test_attention_with_dropout_on_a_driver_that_lacks_it(script):
    # The embedded host driver draws the same bits; by default the math way is taken.
    code = """
assert calls(overload) == (0, 0, 0)
assert torch._fused_sdp_choice(q, k, v, dropout_p=0.1) == 0
torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.1)
"""
    script(DROPPED_ATTENTION + code, NPU_DISABLE_KIND="attention,attention_grad")
    script(DROPPED_ATTENTION + code, NPU_HOST_KERNELS="fast")


def test_kinds_made_of_others(script):
    script(
        """
r = data(torch.float32)
same(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
     r(2, 3, 6, 8), r(2, 3, 6, 8), r(2, 3, 6, 8))
same(lambda x, y: F.mse_loss(x, y), r(4, 5), r(4, 5))
same(lambda x, y: F.huber_loss(x, y, reduction="none"), r(4, 5), r(4, 5))
same(lambda v, g: aten._weight_norm_interface(v, g, 0), r(3, 4), r(3, 1))
same(lambda x: torch.flip(x, (0, 2)), r(2, 3, 4))
overload = "_scaled_dot_product_fused_attention_overrideable"
ran(overload, overload + "_backward", "mse_loss", "mse_loss_backward", "huber_loss", rung=3)
ran("_weight_norm_interface", "_weight_norm_interface_backward", "flip", rung=3)
""",
        NPU_DISABLE_KIND="attention,attention_grad,loss,loss_grad,weight_norm,weight_norm_grad,flip",
    )


def test_a_kind_without_parts_goes_to_the_cpu(script):
    script(
        """
r = data(torch.float32)
same(lambda x, w, b: F.layer_norm(x, [5], w, b), r(3, 5), r(5), r(5))
same(lambda x, w: F.conv2d(x, w), r(1, 2, 5, 5), r(3, 2, 3, 3))
same(lambda x: torch.softmax(x, 1), r(3, 4))
assert calls("native_layer_norm") == calls("convolution_overrideable") == (0, 0, 0)
""",
        NPU_DISABLE_KIND="layer_norm,conv,conv_grad_input,softmax",
    )


def test_bad_input_raises_as_on_cpu(script):
    script("""
def error(fn, device):
    try:
        fn(device)
    except Exception as e:
        return type(e)

x = torch.randn(3, 5)
for fn in (
    lambda d: torch.softmax(torch.arange(4).to(d), 0),
    lambda d: torch.softmax(x.to(d), 2),
    lambda d: F.layer_norm(x.to(d), [4]),
    lambda d: F.conv2d(torch.randn(1, 3, 5, 5).to(d), torch.randn(2, 4, 3, 3).to(d)),
    lambda d: F.conv2d(torch.randn(1, 3, 2, 2).to(d), torch.randn(2, 3, 3, 3).to(d)),
    lambda d: F.nll_loss(x.to(d), torch.zeros(4, dtype=torch.long).to(d)),
    lambda d: F.huber_loss(x.to(d), x.to(d), delta=-1),
    lambda d: F.multi_margin_loss(x.to(d), torch.zeros(3).to(d)),
    lambda d: F.binary_cross_entropy(x.to(d), x.sigmoid().to(d)),
    lambda d: F.binary_cross_entropy(x.sigmoid().to(d), x.to(d), reduction="none"),
    lambda d: F.binary_cross_entropy(x.sigmoid().to(d), (x / 0).to(d)),
    lambda d: F.soft_margin_loss(torch.ones(2).long().to(d), torch.ones(2).long().to(d)),
    lambda d: F.rms_norm(x.to(d), [4]),
    lambda d: F.rms_norm(x.to(d), [5], torch.ones(4).to(d)),
    lambda d: F.glu(x.to(d)),
    lambda d: F.glu(x.to(d), 2),
    lambda d: torch.complex(x.to(d), x.double().to(d)),
    lambda d: torch.complex(x.to(d), torch.arange(5).to(d)),
    lambda d: torch.polar(x.half().to(d), x.half().to(d)),
    lambda d: torch.complex(x.to(d), x.to(d), out=x.clone().to(d)),
):
    assert error(fn, "cpu") is not None and error(fn, "npu") is error(fn, "cpu"), fn
""")
