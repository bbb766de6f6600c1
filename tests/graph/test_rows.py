# SPDX-License-Identifier: Apache-2.0
"""Pass rows on real graphs: chains that end in sums over the last dimensions are one program.

Reductions are frames where every kernel of the host driver is its own (NPU_HOST_KERNELS=all). There a
program has the bits of its frames, sums included.
"""

import pytest
from faulty import discrete_environment

HEAD = """
import gc, os
import torch, torch_npu, torchair
from torchair import _compiler

def total(name):
    return sum(run.replayer.counts()[name] for run in list(_compiler.runners))

def run(make, off):
    os.environ["NPU_GRAPH_OFF"] = off
    torch._dynamo.reset()
    gc.collect()
    _compiler.runners.clear()
    torch.manual_seed(3)
    step, results = make(torchair.get_npu_backend()), []
    for _ in range(3):
        results += [t.detach().cpu().clone() for t in step()]
    assert total("replayed") > 0
    return results, total("row_programs")

def compare(make, programs):
    on, made = run(make, "")
    assert made >= programs, made
    off, none = run(make, "rows")
    assert none == 0 and len(on) == len(off)
    for i, (a, b) in enumerate(zip(on, off, strict=True)):
        assert torch.equal(a, b) or (a.isnan() & b.isnan()).any(), (i, a, b)
"""


@pytest.fixture(params=["host", "discrete"])
def with_all_kernels(run_python, request):
    variables = {"NPU_HOST_KERNELS": "all", "NPU_PROFILE": "none"}
    if request.param == "discrete":
        variables |= discrete_environment()
    return lambda code: run_python(HEAD + code, **variables)


def test_chains_that_end_in_reductions(with_all_kernels):
    with_all_kernels("""
FUNCTIONS = [
    lambda x, y: (x * y).sum(-1),
    lambda x, y: (x - y).square().mean((1, 2)),
    lambda x, y: ((x + y).relu()).amax(-1, keepdim=True),
    lambda x, y: (x * 2 - y).amin(-1),
    lambda x, y: (x.exp(), x.exp().sum(-1)),
]
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    for function in FUNCTIONS:
        def make(backend):
            x = torch.randn(5, 7, 64).to(dtype).npu()
            y = torch.randn(5, 7, 64).to(dtype).npu()
            compiled = torch.compile(function, backend=backend)
            def step():
                made = compiled(x, y)
                return made if isinstance(made, tuple) else (made,)
            return step
        compare(make, 1)
""")


def test_rms_norm_in_steps_forward_and_backward(with_all_kernels):
    with_all_kernels("""
class Norm(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        wide = x.float()
        mean = wide.pow(2).mean(-1, keepdim=True)
        return self.weight * (wide * torch.rsqrt(mean + 1e-6)).to(x.dtype)

def make(backend):
    norm = Norm(96).npu()
    compiled = torch.compile(norm, backend=backend)
    x = torch.randn(4, 6, 96).npu().requires_grad_()
    def step():
        norm.weight.grad = x.grad = None
        out = compiled(x)
        out.square().sum().backward()
        return out, x.grad, norm.weight.grad
    return step
compare(make, 2)
""")
