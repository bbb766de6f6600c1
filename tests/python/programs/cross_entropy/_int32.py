# SPDX-License-Identifier: Apache-2.0
images, places = torch.randn(2, 5, 3, 3), torch.randint(5, (2, 3, 3))
for x, t in ((torch.randn(4, 5), classes), (images, places), (torch.randn(2, 5, 3), torch.randint(5, (2, 3)))):
    for f in (F.cross_entropy, F.nll_loss, lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=2)):
        found = []
        for target in (t.int().npu(), t.npu(), t):
            leaf = x.clone().to(target.device).requires_grad_()
            f(leaf, target).backward()
            found.append((f(leaf, target).detach().cpu(), leaf.grad.cpu()))
        for a, b, c in zip(*found):
            torch.testing.assert_close(a, b)
            torch.testing.assert_close(a, c)
    try:
        F.nll_loss(x.npu(), t.int().npu() + 9)
    except (IndexError, RuntimeError) as error:
        assert "out of bounds" in str(error), error
    else:
        raise AssertionError("class 9 of 5")
