# SPDX-License-Identifier: Apache-2.0
"""Some operators keep the order of the dims, also where the input has gaps; some keep nothing."""
base = torch.rand(7, 6, 10)
keep = (torch.frexp, lambda t: t.flip(0), lambda t: torch._foreach_exp([t])[0])
drop = (lambda t: t.logcumsumexp(-1),)
draw = (torch.poisson, torch._standard_gamma, lambda t: torch.binomial(t, t))
views = (
    lambda t: t[..., ::2].permute(2, 1, 0),
    lambda t: t[:, ::2].permute(1, 0, 2),
    lambda t: t[:1].expand(5, 6, 10).permute(2, 0, 1),
    lambda t: t.permute(1, 2, 0),
)
for view in views:
    a, x = view(base), view(base.npu())
    for f in (*keep, *drop):
        torch.utils._pytree.tree_map(close, f(x), f(a))
    for f in draw:
        assert f(x).stride() == f(a).stride(), (f, f(x).stride())
