# SPDX-License-Identifier: Apache-2.0
"""Attention on the driver's kinds, with dropout too, against PyTorch's CPU and against its definition."""

import nn_script
import pytest

pytestmark = pytest.mark.machines
script = nn_script.script


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
