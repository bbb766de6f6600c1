# SPDX-License-Identifier: Apache-2.0
other = lambda like: torch.arange(float(like.numel())).view(like.shape).to(like.device)
class Holder(torch.nn.Module):
    def __init__(self, w):
        super().__init__()
        self.w = torch.nn.Parameter(w)
def load(w):
    Holder(w).load_state_dict({"w": other(w)})
def optimizer(kind, **options):
    def write(w):
        p = torch.nn.Parameter(w)
        p.grad = other(w)
        kind([p], lr=0.1, **options).step()
    return write
def assign_data(w):
    w.data = other(w) + 3
def assign_storage(w):
    w.set_(other(w).untyped_storage(), 0, w.shape)
def setitem(*at):
    def write(w):
        w[at] = 7.5
    return write
def grow(w):
    w.resize_(20, 20).fill_(3)
    w.resize_(8, 8)
indices = lambda w: torch.tensor([0, 3, 5]).to(w.device)
writes = {
    "native": lambda w: w.add_(1),
    "cpu kernel": lambda w: w.mul_(2),
    "copy from host": lambda w: w.copy_(torch.full((8, 8), 4.0)),
    "copy from strided host": lambda w: w.copy_(torch.arange(64.0).view(8, 8).t()),
    "queued copy": lambda w: w.copy_(torch.full((8, 8), 5.0).pin_memory(), non_blocking=True),
    "cast copy": lambda w: w.copy_(other(w).double()),
    "copy on device": lambda w: w.copy_(other(w)),
    "transposed copy": lambda w: w.t().copy_(other(w)),
    "copy from the other device": lambda w: w.copy_(other(w).to(w.device if w.is_cpu else "npu:1")),
    "fill": lambda w: w.fill_(9), "zero": lambda w: w.zero_(), "masked": lambda w: w.masked_fill_(w > 0, 1),
    "row": setitem(3), "column": setitem(slice(None), 2), "element": setitem(1, 1),
    "view": lambda w: w[2:4].add_(1), "strided view": lambda w: w[::2, 1::3].add_(1),
    "view by cpu": lambda w: w[::2, 1::3].mul_(3), "flat": lambda w: w.view(-1)[10:20].mul_(3),
    "bits": lambda w: w.view(torch.int32).copy_(other(w).to(torch.int32)),
    "index_put": lambda w: w.index_put_((indices(w),), other(w)[:3]),
    "scatter": lambda w: w.scatter_add_(0, indices(w).view(3, 1), other(w)),
    "out native": lambda w: torch.add(w, 2, out=w), "out by cpu": lambda w: torch.mul(w, 2, out=w),
    "out view": lambda w: torch.mul(w[0], 2, out=w[1]),
    "foreach": lambda w: torch._foreach_add_([w], [other(w)]),
    "foreach by cpu": lambda w: torch._foreach_mul_([w, w[0]], 2.0),
    "sgd": optimizer(torch.optim.SGD, momentum=0.9), "adamw": optimizer(torch.optim.AdamW),
    "fused": optimizer(torch.optim.AdamW, fused=True), "one by one": optimizer(torch.optim.AdamW, foreach=False),
    "data": assign_data, "set_": assign_storage, "load": load, "grow": grow,
    "storage copy": lambda w: w.untyped_storage().copy_(other(w).untyped_storage()),
    "storage fill": lambda w: w.untyped_storage().fill_(0),
    "swap": lambda w: torch.utils.swap_tensors(w, other(w)),
}
start = torch.randn(8, 8)
