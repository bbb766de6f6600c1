# SPDX-License-Identifier: Apache-2.0
"""Convolution, softmax, norms and losses on the driver's kinds, against PyTorch's CPU.

In child processes with NPU_HOST_KERNELS=all. Forward and gradients, dtypes and strides; which rung
ran is read off the calls' counters. NPU_DISABLE_KIND takes a kind away: then rung 3 makes it of
others where src/compose knows how, and the CPU rung does the rest.
"""

import nn_script
import pytest

pytestmark = pytest.mark.machines
script = nn_script.script


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
before = calls("native_layer_norm")[0]
same(lambda x, w: aten.native_layer_norm(x, [5], w, w, 1e-5), half, w, grad=False)
assert calls("native_layer_norm")[0] == before + 1  # the mixed call too
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
