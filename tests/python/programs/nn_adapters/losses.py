# SPDX-License-Identifier: Apache-2.0
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
