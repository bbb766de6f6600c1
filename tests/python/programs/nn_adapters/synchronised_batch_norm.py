# SPDX-License-Identifier: Apache-2.0
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
