# SPDX-License-Identifier: Apache-2.0
for dtype in (torch.float32, torch.bfloat16):
    r = data(dtype)
    ends = torch.tensor([3, 3, 8], dtype=torch.int32)
    def grouped(a, b):
        return torch._grouped_mm(a, b, offs=ends.to(a.device))
    rows, matrices = r(8, 16), r(3, 16, 8)
    same(grouped, rows, matrices)                                   # rows in groups
    same(grouped, r(3, 8, 16), r(16, 8))                            # columns in groups
    same(grouped, r(16, 8), r(8, 16))                               # the summed dimension in groups
    same(grouped, r(8, 16), r(3, 8, 16).transpose(1, 2), grad=False)
    same(lambda a, b: torch._grouped_mm(a, b), r(3, 4, 16), r(3, 16, 8), grad=False)
    wide = r(3, 16, 16)
    torch.testing.assert_close(                                     # rows begin at multiples of 16 bytes
        grouped(rows.npu(), wide.npu()[..., :10]).cpu(), grouped(rows, wide[..., :10]), rtol=2e-2, atol=2e-2)
for bad in (lambda d: torch._grouped_mm(torch.ones(8, 16, device=d), torch.ones(3, 16, 8, device=d)),
            lambda d: torch._grouped_mm(torch.ones(8, 16, device=d), torch.ones(3, 8, 8, device=d),
                                        offs=torch.tensor([1, 2, 8], dtype=torch.int32, device=d))):
    for device in ("cpu", "npu"):
        try:
            bad(device)
        except RuntimeError:
            continue
        raise AssertionError(device)
