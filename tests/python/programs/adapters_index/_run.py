# SPDX-License-Identifier: Apache-2.0
import sys
import torch.nn.functional as F

dev = "cpu"
made = []

def seeded(make):
    # Both devices get the same numbers, in the order they are asked for.
    torch.manual_seed(len(made))
    made.append(1)
    return make().to(dev)

def t(*shape):
    return seeded(lambda: torch.randn(shape))
def u(*shape):
    return seeded(lambda: torch.rand(shape))
def i(high, *shape):
    return seeded(lambda: torch.randint(high, shape))
def offsets():
    return torch.tensor([0, 3, 3, 7], device=dev)
def put(x, where, values):
    x[where] = values
    return x
def grad(f, x):
    x.requires_grad_()
    y = f(x)
    seed = torch.arange(y.numel()).remainder(7).sub(3.0).reshape(y.shape).to(dev)
    return torch.autograd.grad(y, x, seed)[0]

def compute(where, code):
    global dev
    dev = where
    made.clear()
    out = eval(code)
    return list(out) if isinstance(out, (tuple, list)) else [out]

failed = []
for line in CASES.strip().splitlines():
    overload, code = (part.strip() for part in line.split(" | ", 1))
    try:
        want = compute("cpu", code)
        before = calls(overload)
        got = compute("npu", code)
        after = calls(overload)
        assert sum(after) > sum(before), "it did not run on the driver"
        for w, g in zip(want, got, strict=True):
            close(g.detach(), w.detach())
    except Exception as e:
        failed.append(f"{line}\n    {type(e).__name__}: {e}")
assert not failed, "\n".join(failed)
