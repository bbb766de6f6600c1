# SPDX-License-Identifier: Apache-2.0
w, y = torch.randn(64, 64).npu(), torch.randn(64, 64).npu()
size = w.nbytes
assert copied(lambda: w * 2) == (size, size)
assert copied(lambda: [w * 2, w * 2]) == (2 * size, 2 * size)  # nothing is kept
assert copied(lambda: torch.mul(w, w)) == (size, size)  # one storage, one copy
assert copied(lambda: torch.mul(w, y, out=y)) == (2 * size, size)
assert copied(lambda: torch.mul(w, 2, out=y)) == (size, size)  # an out= tensor is not read
assert copied(lambda: y.mul_(2)) == (size, size)
assert copied(lambda: y[2].mul_(2)) == (y[2].nbytes, y[2].nbytes)
table = torch.randn(4096).npu()
assert copied(lambda: table[8:16] * 2) == (32, 32)
