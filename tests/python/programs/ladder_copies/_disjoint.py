# SPDX-License-Identifier: Apache-2.0
def check(make_views, base):
    global meanwhile
    mine, other = make_views(base)
    meanwhile = lambda: other.fill_(5)
    torch.ops.rung5.write(mine, 3)
    torch.npu.synchronize()
    assert mine.eq(3).all(), mine
    assert other.eq(5).all(), other

flat = lambda: torch.zeros(64, device="npu")
check(lambda b: (b[:32], b[32:]), flat())
check(lambda b: (b[40:], b[:40]), flat())
check(lambda b: (b[::2], b[1::2]), flat())
check(lambda b: (b.view(8, 8)[:, 1:3], b.view(8, 8)[:, 3:]), flat())
check(lambda b: (b.view(8, 8).t()[2:5], b.view(8, 8).t()[5:]), flat())
check(lambda b: (b.view(4, 4, 4)[:, ::2, 1::2], b.view(4, 4, 4)[:, 1::2]), flat())
check(lambda b: (b.as_strided((4, 3), (16, 1), 2), b.as_strided((4, 2), (16, 1), 5)), flat())
check(lambda b: (b[7], b[8:]), flat())
half = torch.zeros(33, 3, dtype=torch.float16, device="npu")
check(lambda b: (b[:, 1], b[:, 2]), half)
