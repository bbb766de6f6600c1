# SPDX-License-Identifier: Apache-2.0
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
for target in (classes + 9, classes[:3]):
    errors = []
    for device in ("cpu", "npu"):
        try:
            F.cross_entropy(torch.zeros(4, 5, device=device), target.to(device))
        except Exception as e:
            errors.append(type(e))
    assert len(errors) == 2 and errors[0] is errors[1], errors
