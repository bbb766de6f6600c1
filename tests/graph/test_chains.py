# SPDX-License-Identifier: Apache-2.0
"""Pass chains on real graphs: neighbouring elementwise frames are one program, and no bit changes.

With every kernel of the host driver its own (NPU_HOST_KERNELS=all) all operators are frames, so that
most tests run there, in a process of its own, against the same graphs with the pass switched off.
"""

import pytest
import torch
import torchair
import versions
from faulty import faulty_environment
from torchair import _compiler

HEAD = """
import gc, os
import torch, torch_npu, torchair
from torchair import _compiler

def total(name):
    return sum(run.replayer.counts()[name] for run in list(_compiler.runners))

def run(make, off):
    \"\"\"Results of four calls, and how many programs the recordings have.\"\"\"
    os.environ["NPU_GRAPH_OFF"] = "chains" if off else ""
    torch._dynamo.reset()
    gc.collect()
    _compiler.runners.clear()
    torch.manual_seed(3)
    step, results = make(torchair.get_npu_backend()), []
    for _ in range(4):
        results += [t.detach().cpu().clone() for t in step()]
    assert total("replayed") > 0
    return results, total("programs"), total("fused")

def same_bits(a, b):
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    view = lambda t: (torch.view_as_real(t) if t.is_complex() else t).contiguous()
    a, b = view(a), view(b)
    return torch.equal(a.view(kinds[a.element_size()]), b.view(kinds[b.element_size()]))

def compare(make, programs=1, fused=2):
    on, made, went = run(make, off=False)
    assert made >= programs and went >= fused, (made, went)
    off, none, _ = run(make, off=True)
    assert none == 0 and len(on) == len(off)
    for i, (a, b) in enumerate(zip(on, off, strict=True)):
        assert same_bits(a, b), (i, a, b)
"""


@pytest.fixture
def with_all_kernels(run_python):
    variables = {"NPU_HOST_KERNELS": "all", "NPU_PROFILE": "none"}
    return lambda code, **more: run_python(HEAD + code, **{**variables, **more})


def test_functions_of_every_dtype(with_all_kernels):
    """Broadcasting, several outputs, casts, masks, in-place changes, views, NaN and infinity."""
    with_all_kernels("""
def body(x, row, state, mask):
    y = torch.where(mask, x * row + 1, x / 3)
    z = (y.clamp(-2, 2) - row).abs()
    state.add_(z, alpha=2).mul_(0.5)
    return torch.maximum(z, state) + y, z, (y > z).to(x.dtype) * state, (x.t() + 1).neg()

for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    def make(backend):
        x = torch.randn(33, 70, dtype=torch.float64)
        x[0, :4] = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
        x, row = x.to(dtype).npu(), torch.randn(70).to(dtype).npu()
        state, mask = torch.randn(33, 70).to(dtype).npu(), (torch.randn(33, 70) > 0).npu()
        function = torch.compile(body, backend=backend)
        return lambda: (*function(x, row, state, mask), state)
    compare(make, fused=6)

def whole(x, y):
    z = (x + y) * x - 3
    return z, torch.maximum(z, y) ^ x, (z > y) | (x == y), z.float() * 0.5

for dtype in (torch.int8, torch.int32, torch.int64, torch.uint8):
    def make(backend):
        x, y = (torch.randint(0, 100, (19, 5)).to(dtype).npu() for _ in range(2))
        function = torch.compile(whole, backend=backend)
        return lambda: function(x, y)
    compare(make, fused=4)
""")


def test_lists_of_every_dtype(with_all_kernels):
    """Numbers keep their digits beside half types, as in the list kernels; one operand is written."""
    with_all_kernels("""
def body(xs, ys):
    a = torch._foreach_mul(xs, 0.7)
    b = torch._foreach_addcmul(a, ys, xs, value=0.3)
    c = torch._foreach_maximum(torch._foreach_add(b, ys, alpha=0.1), -0.2)
    torch._foreach_add_(xs, c)
    d = torch._foreach_div(torch._foreach_sqrt(torch._foreach_abs(c)), 3.3)
    return [*c, *torch._foreach_sub(d, xs)]

for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    def make(backend):
        xs, ys = ([torch.randn(n).to(dtype).npu() for n in (5, 1, 3000)] for _ in range(2))
        function = torch.compile(body, backend=backend)
        return lambda: (*function(xs, ys), *xs)
    compare(make, fused=6)
""")


def test_gpt_and_its_optimizer(with_all_kernels, counts):
    """A training step; gradients are compared through what the optimizer makes of them."""
    with_all_kernels("""
class Block(torch.nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.inner, self.outer = torch.nn.Linear(width, 32), torch.nn.Linear(32, width)
        self.drop = torch.nn.Dropout(0.1)
    def forward(self, x):
        inner = self.inner(self.norm(x))
        return x + self.drop(self.outer(inner * torch.sigmoid(1.702 * inner)))

def make(backend):
    model = torch.nn.Sequential(Block(), Block()).npu()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True, capturable=True)
    loss = torch.compile(lambda x: model(x).square().mean(), backend=backend)
    update = torch.compile(optimizer.step, backend=backend)
    x = torch.randn(7, 16).npu()
    def step():
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        update()
        state = [v for p in model.parameters() for v in optimizer.state[p].values()]
        return [value, *model.parameters(), *state]
    return step
compare(make, programs=3, fused=10)
""")


def residual(x, weight):
    for _ in range(2):
        x = torch.relu(torch.nn.functional.conv2d(x, weight, padding=1) + x)
    return x


def optimized(steps: int):
    torch._dynamo.reset()
    torch.manual_seed(5)
    parameters = [torch.nn.Parameter(torch.randn(n, 3).npu()) for n in (4000, 7, 1)]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)
    step = torch.compile(optimizer.step, backend=torchair.get_npu_backend())
    for i in range(steps):
        for k, p in enumerate(parameters):
            seed = torch.Generator().manual_seed(9 * i + k)
            p.grad = torch.randn(p.shape, generator=seed).npu()
        step()
    return [*parameters, *(v for p in parameters for v in optimizer.state[p].values())], step


def test_by_default_the_optimizer_and_a_residual_net_have_programs(counts, monkeypatch):
    """Kernels as they are chosen by default: PyTorch's own between the programs."""
    torch.manual_seed(1)
    x, weight = torch.randn(2, 4, 64, 64).npu(), torch.randn(4, 4, 3, 3).npu()

    def run():
        state, alive = optimized(5)
        net = torch.compile(residual, backend=torchair.get_npu_backend())
        return [*state, *(net(x, weight) for _ in range(3))], (alive, net)

    on, _alive = run()
    # AdamW's moments with the fill of its factor (Dynamo traces less of it before torch 2.13); two of
    # add and relu.
    adamw = 5 + 3 if versions.dynamo_traces_adamw_as_eager() else 3 + 3
    assert counts("programs") >= 3 and counts("fused") >= adamw + 4
    memory = counts("arena_bytes")
    monkeypatch.setenv("NPU_GRAPH_OFF", "chains")
    torch._dynamo.reset()
    _compiler.runners.clear()
    off, _alive = run()
    assert counts("programs") == 0 and counts("arena_bytes") > memory
    assert all(map(torch.equal, on, off))
    assert torch.equal(on[-1], residual(x, weight))


def test_a_driver_without_the_kind_keeps_the_frames(with_all_kernels):
    with_all_kernels(
        """
def make(backend):
    x = torch.randn(9).npu()
    function = torch.compile(lambda x: (x + 1) * x - 2, backend=backend)
    return lambda: (function(x),)
on, made, _ = run(make, off=False)
assert made == 0
assert torch.equal(on[0], on[-1])
""",
        NPU_DISABLE_KIND="program,multi_program",
    )


def test_a_program_that_is_declined_or_fails_in_a_replay(with_all_kernels):
    """Declined: its operations run one by one. Failing: an error with all names; nothing is lost."""
    with_all_kernels(
        """
import ctypes
faulty = ctypes.CDLL(os.environ["NPU_DRIVER"])
faulty.npu_faulty_fired.restype = ctypes.c_int64

def body(x, state):
    state.mul_(0.5)
    return (torch.sin(x) + state) * x

x, kept = torch.randn(5, 64).npu(), torch.randn(5, 64).npu()
function = torch.compile(body, backend=torchair.get_npu_backend())
def once():
    state = kept.clone()
    return function(x, state), state
wanted = [t.clone() for t in once()]
once(), once()
assert total("programs") == 1 and total("replayed") > 0
state = kept.clone()
assert faulty.npu_faulty_arm(b"op.run:1:unsupported") == 0
got = function(x, state), state
assert faulty.npu_faulty_fired() == 1 and total("left") == 0
assert all(map(torch.equal, got, wanted))
state = kept.clone()
assert faulty.npu_faulty_arm(b"op.run:1") == 0
try:
    function(x, state)
except RuntimeError as error:
    assert "aten::sin" in str(error) and "aten::mul" in str(error), error
else:
    raise SystemExit("no error")
faulty.npu_faulty_arm(b"")
assert torch.equal(state, kept)
assert all(map(torch.equal, once(), wanted)) and total("recorded") == 1
""",
        **faulty_environment(),
    )
