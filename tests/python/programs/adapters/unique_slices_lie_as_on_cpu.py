# SPDX-License-Identifier: Apache-2.0
for sizes in ((5, 1), (5, 3), (2, 3, 4), (2, 3, 1)):
    for a in (torch.zeros(sizes), torch.randint(0, 2, sizes)):
        for dim in range(len(sizes)):
            for f in (torch.unique, torch.unique_consecutive):
                got = f(a.npu(), dim=dim, return_inverse=True, return_counts=True)
                want = f(a, dim=dim, return_inverse=True, return_counts=True)
                for g, w in zip(got, want, strict=True):
                    close(g, w)
assert calls("unique_dim")[0] > 0
