# SPDX-License-Identifier: Apache-2.0
"""Convolution, softmax, norms and losses on the driver's kinds, against PyTorch's CPU.

In child processes with NPU_HOST_KERNELS=all. Forward and gradients, dtypes and strides; which rung
ran is read off the calls' counters. NPU_DISABLE_KIND takes a kind away: then rung 3 makes it of
others where src/compose knows how, and the CPU rung does the rest.
"""

import nn_script
import pytest
import torch
from programs import names, program, variables

pytestmark = pytest.mark.machines
script = nn_script.script


@pytest.mark.parametrize("name", names(__file__))
def test_program(script, name):
    script(program(__file__, name), **variables(__file__, name))


STATISTICS = """
for dtype in (torch.bfloat16, torch.float16):
    r = data(dtype)
    x, w, b, g = r(3, 4, 5), r(5), r(5), r(3, 4, 5)
    exact = (x.float() - x.float().mean(-1, keepdim=True)).npu()
    for weights in ((w, b), (None, None), (w.float(), b.float())):
        weights = [t if t is None else t.npu() for t in weights]
        out, mean, rstd = aten.native_layer_norm(x.npu(), [5], *weights, 1e-5)
        assert out.dtype == dtype and mean.dtype == rstd.dtype == torch.float32
        assert mean.shape == rstd.shape == (3, 4, 1)
        torch.testing.assert_close(x.npu().float() - mean, exact, rtol=0, atol=MEAN)
        grads = aten.native_layer_norm_backward(g.npu(), x.npu(), [5], mean, rstd, *weights,
                                               [True, *(t is not None for t in weights)])
        leaves = [t.float().cpu().requires_grad_() for t in (x, *weights) if t is not None]
        want = torch.autograd.grad(F.layer_norm(leaves[0], [5], *leaves[1:]), leaves, g.float())
        for mine, theirs, like in zip([t for t in grads if t is not None], want, (x, *weights)):
            assert mine.dtype == like.dtype
            torch.testing.assert_close(mine.float().cpu(), theirs, rtol=4e-2, atol=8e-2)
    images, w, b, m, v = r(3, 4, 5).npu(), *(r(4).abs().npu() + 0.5 for _ in range(4))
    for training in (True, False):
        for op in (aten.native_batch_norm, aten._native_batch_norm_legit):
            out, mean, rstd = op(images, w, b, m.clone(), v.clone(), training, 0.1, 1e-5)
            assert mean.shape == rstd.shape == (4 if training else 0,)
            assert mean.dtype == rstd.dtype == torch.float32
            if training:
                torch.testing.assert_close(mean, images.float().mean((0, 2)), rtol=0, atol=MEAN)
            grads = aten.native_batch_norm_backward(images, images, w, m, v, mean, rstd, training, 1e-5, [True] * 3)
            assert [t.dtype for t in grads] == [dtype] * 3
assert aten.batch_norm_update_stats(images, m, v, 0.1)[0].dtype == torch.float32
"""


def test_statistics_beside_halves_are_float32(script):
    script(STATISTICS.replace("MEAN", "1e-6"))


@pytest.mark.parametrize(
    "how", [{"NPU_HOST_KERNELS": "fast"}, {"NPU_DISABLE_KIND": "layer_norm,layer_norm_grad"}]
)
def test_statistics_of_the_cpu_are_converted(script, how):
    script(STATISTICS.replace("MEAN", "1e-2"), **how)


def test_rms_norm(script):
    code = program(__file__, "_rms_norm")
    script(code + 'ran("_fused_rms_norm", "_fused_rms_norm_backward")')
    script(code, NPU_HOST_KERNELS="fast")
    made = 'assert calls("_fused_rms_norm") == calls("_fused_rms_norm_backward") == (0, 0, 0)'
    script(code + made, NPU_DISABLE_KIND="rms_norm,rms_norm_grad")


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


def test_kinds_made_of_others(script):
    script(
        """
r = data(torch.float32)
same(lambda x, y: F.mse_loss(x, y), r(4, 5), r(4, 5))
same(lambda x, y: F.huber_loss(x, y, reduction="none"), r(4, 5), r(4, 5))
same(lambda v, g: aten._weight_norm_interface(v, g, 0), r(3, 4), r(3, 1))
same(lambda x: torch.flip(x, (0, 2)), r(2, 3, 4))
ran("mse_loss", "mse_loss_backward", "huber_loss", rung=3)
ran("_weight_norm_interface", "_weight_norm_interface_backward", "flip", rung=3)
""",
        NPU_DISABLE_KIND="loss,loss_grad,weight_norm,weight_norm_grad,flip",
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


GROUPED = program(__file__, "_grouped")


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="a torch without _grouped_mm")
def test_grouped_products(script):
    script(GROUPED + 'ran("_grouped_mm")')


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="a torch without _grouped_mm")
def test_grouped_products_without_the_kind(script):
    script(GROUPED, NPU_DISABLE_KIND="gemm_grouped")
