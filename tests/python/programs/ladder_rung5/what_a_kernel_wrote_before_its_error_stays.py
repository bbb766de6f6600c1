# SPDX-License-Identifier: Apache-2.0
lib = torch.library.Library("fails", "DEF")
lib.define("half(Tensor(a!) x) -> ()")
lib.define("out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
def half(x):
    x[:32] = 7
    raise ValueError("no")
def out(x, out):
    out[:3] = 5
    raise ValueError("no")
lib.impl("half", half, "CPU")
lib.impl("out", out, "CPU")
w, o = torch.ones(64).npu(), torch.ones(64).npu()
for call in (lambda: torch.ops.fails.half(w), lambda: torch.ops.fails.out(w, out=o)):
    read(w), read(o)
    try:
        call()
    except ValueError:
        pass
    assert torch.equal(read(w), w.cpu()) and torch.equal(read(o), o.cpu())
assert w.cpu()[:32].eq(7).all()
