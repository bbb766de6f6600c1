# SPDX-License-Identifier: Apache-2.0
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
