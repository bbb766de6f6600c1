# SPDX-License-Identifier: Apache-2.0
lib = torch.library.Library("keeps", "DEF")
lib.define("see(Tensor x) -> Tensor")
lib.define("write(Tensor(a!) x) -> ()")
kept = []
def see(x):
    kept.append(x)
    return x.clone()
def write(x):
    kept.append(x)
    x.mul_(2)
lib.impl("see", see, "CPU")
lib.impl("write", write, "CPU")
w = torch.ones(64).npu()
read(w)
torch.ops.keeps.see(w)
kept[-1].fill_(9)  # its own memory by now
assert read(w).eq(1).all()
torch.ops.keeps.write(w)
kept[-1].fill_(9)
assert read(w).eq(2).all() and w.cpu().eq(2).all()
w.mul_(2)
assert kept[-1].eq(9).all() and read(w).eq(4).all()
