# SPDX-License-Identifier: Apache-2.0
"""Attention on the driver's kinds, with dropout too, against PyTorch's CPU and against its definition."""

import nn_script
import pytest
from programs import names, program, variables

pytestmark = pytest.mark.machines
script = nn_script.script


@pytest.mark.parametrize("name", names(__file__))
def test_program(script, name):
    script(program(__file__, name), **variables(__file__, name))


LAYOUT = """
pair = aten._scaled_dot_product_fused_attention_overrideable
back = aten._scaled_dot_product_fused_attention_overrideable_backward
for dtype in (torch.float32, torch.bfloat16):
    for turned in (False, True):
        for size in SIZES:
            q, k, v = (torch.randn(2, *((n, 3) if turned else (3, n)), d).to(dtype).npu()
                       for n, d in ((6, 8), (7, 8), (7, size)))
            q, k, v = (x.transpose(1, 2) if turned else x for x in (q, k, v))
            out, lse, *rest = pair(q, k, v, None, 0.0, True)
            assert lse.stride() == (18, 6, 1) and lse.dtype == torch.float32
            order = (0, 2, 1, 3) if turned else (0, 1, 2, 3)
            assert out.permute(order).is_contiguous() and out.shape == (2, 3, 6, size)
            grads = back(torch.ones_like(out), q, k, v, None, [True] * 3 + [False], out, lse, None, None, 6, 7,
                         0.0, True, rest[4], rest[5])
            for grad, x in zip(grads, (q, k, v)):
                assert grad.stride() == x.stride(), (grad.stride(), x.stride())
            wide = [x.float().cpu().requires_grad_() for x in (q, k, v)]
            want = F.scaled_dot_product_attention(*wide, is_causal=True)
            want.sum().backward()
            t = TOLERANCE[dtype]
            torch.testing.assert_close(out.float().cpu(), want.detach(), rtol=t, atol=t)
            for grad, x in zip(grads, wide):
                torch.testing.assert_close(grad.float().cpu(), x.grad, rtol=2 * t, atol=2 * t)
"""


@pytest.mark.parametrize("kernels", ["all", "fast"])
def test_results_are_laid_out_as_fake_tensors_say(script, kernels):
    script(LAYOUT.replace("SIZES", "(8, 4, 12)"), NPU_HOST_KERNELS=kernels)


def test_results_of_the_composition_are_laid_out_so_too(script):
    script(LAYOUT.replace("SIZES", "(8, 4)"), NPU_DISABLE_KIND="attention,attention_grad")


DROPPED_ATTENTION = program(__file__, "_dropped_attention")


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
