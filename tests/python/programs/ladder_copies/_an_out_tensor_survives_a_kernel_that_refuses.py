# SPDX-License-Identifier: Apache-2.0
out = torch.full((8,), 7.0, device="npu")
try:
    torch.linalg.inv(torch.ones(2, 3, device="npu"), out=out)
except RuntimeError:
    pass
assert out.eq(7).all(), out
library.define("fail(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
def fail(x, out):
    raise ValueError("no")
library.impl("fail", fail, "CPU")
try:
    torch.ops.rung5.fail(out, out=out)
except ValueError:
    pass
assert out.eq(7).all(), out
other = torch.full((8,), 6.0, device="npu")
try:
    torch.ops.rung5.fail(out, out=other)
except ValueError:
    pass
assert other.eq(6).all(), other
