# SPDX-License-Identifier: Apache-2.0
import os, random, torch, torch_npu, torchair
from torch.fx.experimental.proxy_tensor import make_fx

UNARY = [torch.relu, torch.sigmoid, torch.tanh, torch.neg, lambda x: x * 0.5 + 1, lambda x: x.t().contiguous().t(),
         lambda x: x.clamp(-1, 1), lambda x: x - x.mean(0), lambda x: x.softmax(-1), lambda x: x[:, ::1] / 2,
         lambda x: torch.zeros_like(x) + x, lambda x: x.sum(1, keepdim=True).expand(6, 6) / 6]
BINARY = [torch.add, torch.sub, torch.mul, torch.maximum, lambda x, y: torch.where(x > y, x, y * 0.25),
          lambda x, y: (x @ y) / 6, lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: x + y.t()]
LISTS = [lambda xs: torch._foreach_mul(xs, 0.5), lambda xs: torch._foreach_add(xs, 1.0),
         lambda xs: torch._foreach_add(xs, list(reversed(xs)), alpha=0.1), lambda xs: torch._foreach_abs(xs)]

def drawn(seed):
    """A list of steps, and which inputs they write."""
    draw = random.Random(seed)
    steps = []
    for _ in range(draw.randrange(4, 16)):
        kind = draw.choice(["unary", "binary", "binary", "list", "write", "whole"])
        steps.append((kind, draw.randrange(100), draw.randrange(100), draw.randrange(100)))
    return steps

def function_of(steps):
    def function(*inputs):
        values = list(inputs)
        at = lambda i: values[i % len(values)]
        for kind, i, j, k in steps:
            if kind == "unary":
                values.append(UNARY[k % len(UNARY)](at(i)))
            elif kind == "binary":
                values.append(BINARY[k % len(BINARY)](at(i), at(j)))
            elif kind == "list":
                values += LISTS[k % len(LISTS)]([at(i), at(j), at(i + j)])
            elif kind == "write":  # an input changes in place
                inputs[i % len(inputs)].mul_(0.5).add_(at(j) * 0.25)
            else:  # ... as a whole, from a value that is computed before
                inputs[i % len(inputs)].copy_(at(j) - at(k))
        return values[len(inputs):]
    return function

def inputs(seed, turn):
    draw = torch.Generator().manual_seed(100 * seed + turn)
    return [torch.randn(6, 6, generator=draw) for _ in range(3)]

counted = dict.fromkeys(("copies_removed", "reused", "fused", "tiled", "device_graphs"), 0)
for seed in range(EXAMPLES):
    function = function_of(drawn(seed))
    with torch.no_grad():
        on_npu = lambda turn: [x.npu() for x in inputs(seed, turn)]
        module = make_fx(torch.func.functionalize(function))(*on_npu(0))
        run = torchair.get_compiler()(module, on_npu(0))
        for turn in range(4):
            given, eager, exact = on_npu(turn), on_npu(turn), [x.double() for x in inputs(seed, turn)]
            got, wanted, truth = run(list(given)), function(*eager), function(*exact)
            for a, b, c in zip([*got, *given], [*wanted, *eager], [*truth, *exact], strict=True):
                assert torch.equal(a.cpu(), b.cpu()), (seed, turn)
                torch.testing.assert_close(a.cpu().double(), c, rtol=1e-4, atol=1e-4)
    counts = run.replayer.counts()
    assert counts["replayed"] >= 2, counts
    for name in counted:
        counted[name] += counts[name]
print(counted)
assert counted["fused"] > 0 and counted["copies_removed"] > 0, counted
assert (counted["device_graphs"] > 0) == ("NPU_DISCRETE_CAPTURE" in os.environ), counted
