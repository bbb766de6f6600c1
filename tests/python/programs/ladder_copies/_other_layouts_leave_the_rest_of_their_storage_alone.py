# SPDX-License-Identifier: Apache-2.0
q = torch.quantize_per_tensor(torch.zeros(64, device="npu"), 1.0, 0, torch.qint8)
bytes_ = torch.empty(0, dtype=torch.int8, device="npu").set_(q.untyped_storage())
def check(mine, others):
    global meanwhile
    meanwhile = lambda: [o.fill_(5) for o in others]
    torch.ops.rung5.write(mine, 3)
    assert all(o.eq(5).all() for o in others), bytes_
    got = mine.int_repr()
    assert got.eq(3).all(), got
check(q[:32], [bytes_[32:]])
check(q[8:40], [bytes_[:8], bytes_[40:]])
