# SPDX-License-Identifier: Apache-2.0
"""What a replay does without the dispatcher: CPU kernels on the device's bytes, host numbers, copies."""

import pytest
import torch
import torchair
import versions
from small_models import make
from torch.nn import functional as F
from torchair import _compiler


def compiled(function, **kwargs):
    return torch.compile(function, backend=torchair.get_npu_backend(), **kwargs)


def randn(*sizes, **kwargs):
    return torch.randn(*sizes, device="npu", **kwargs)


def host_device() -> bool:
    """Whether host code may always read the device's memory, so that host calls exist."""
    probe = compiled(lambda x: torch.linalg.vector_norm(x) + torch.cumsum(x, 0))
    x = randn(3)
    [probe(x) for _ in range(3)]
    return any(run.replayer.counts()["host_calls"] for run in list(_compiler.runners))


def test_results_that_stay_alive_and_other_addresses(counts):
    weight, bias = randn(6), randn(6)

    def body(x):
        y = F.layer_norm(x, (6,), weight, bias)  # the kernel makes its results
        z = torch.logsumexp(y @ y.t(), 1)  # the product is written into planned memory
        return y, z, torch.cat([y, x]), torch.sort(x)[0][::2]

    function, kept = compiled(body), []
    for _ in range(6):
        x = randn(4, 6)
        kept.append((function(x), body(x)))
    for got, wanted in kept:
        assert all(map(torch.equal, got, wanted))
    assert len({got[0].data_ptr() for got, _ in kept}) == len(kept)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_call_in_a_wider_dtype_is_repeated_as_it_was(counts, dtype):
    """A replay that called the CPU's kernel alone would round after every step (ops/wide.yaml)."""

    def body(x, a):
        return F.adaptive_avg_pool3d(x, 2), a @ a

    function, x, a = compiled(body), randn(2, 3, 9, 9, 9, dtype=dtype), randn(64, 64, dtype=dtype)
    for _ in range(4):
        assert all(map(torch.equal, function(x, a), body(x, a)))


def test_a_number_of_the_graph_is_bound(counts):
    def body(x, k):
        return torch.cumsum(x, 0) * k, torch.narrow(x, 0, 0, k).sum()

    function = compiled(body, dynamic=True)
    x = randn(8)
    for k in (2, 3, 4, 5, 2):
        assert all(map(torch.equal, function(x, k), body(x, k)))


def test_an_operator_that_writes_its_argument(counts):
    def body(x, index, values):
        x.index_add_(0, index, values)
        return x.cumsum(0)

    function, index = compiled(body), torch.tensor([2, 0], device="npu")
    a = randn(4, 3)
    b = a.clone()
    for _ in range(4):
        values, before = randn(2, 3), b._version
        assert torch.equal(body(a, index, values), function(b, index, values))
        assert torch.equal(a, b) and b._version > before


def test_parts_switched_off_change_no_bit(monkeypatch, counts):
    model, x = make("gpt")
    model, x = model.npu(), x.npu()

    def run():
        torch._dynamo.reset()
        graph, out = compiled(model), []
        for _ in range(3):
            model.zero_grad()
            y = graph(x)
            y.sin().sum().backward()
            out = [y, *(p.grad.clone() for p in model.parameters())]
        return out

    on = run()
    monkeypatch.setenv("NPU_GRAPH_OFF", "host_calls,numbers,copies,dead")
    _compiler.runners.clear()
    off = run()
    assert counts("host_calls") == 0 and counts("copies_removed") == 0
    assert all(map(torch.equal, on, off))


def gradient(step: int, k: int, shape) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(9 * step + k))


SHAPES = ((7, 5), (5,), (3, 3), (64,))


def optimized(steps: int):
    """Parameters and states after compiled steps of AdamW, and what ran them."""
    torch.manual_seed(5)
    parameters = [torch.nn.Parameter(torch.randn(shape).npu()) for shape in SHAPES]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1)
    step = compiled(optimizer.step)
    for i in range(steps):
        for k, p in enumerate(parameters):
            p.grad = gradient(i, k, p.shape).npu()
        step()
    state = [v for p in parameters for v in optimizer.state[p].values()]
    return [t.detach().cpu() for t in (*parameters, *state)], step


def test_a_compiled_optimizer_against_its_formula(counts):
    """AdamW in float64, as its paper writes it: decay, moments, bias corrections, step."""
    got, _alive = optimized(6)
    assert counts("replayed") >= 3
    torch.manual_seed(5)
    for k, shape in enumerate(SHAPES):
        p = torch.randn(shape).double()
        m, v = torch.zeros_like(p), torch.zeros_like(p)
        for i in range(6):
            g = gradient(i, k, shape).double()
            p = p * (1 - 1e-2 * 0.1)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            t = i + 1
            p = p - 1e-2 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        torch.testing.assert_close(got[k].double(), p, rtol=2e-6, atol=2e-6)


def stepped(backend, **options):
    """Parameters and states after six steps of AdamW; `backend` None: eager mode."""
    torch._dynamo.reset()
    torch.manual_seed(5)
    parameters = [torch.nn.Parameter(torch.randn(shape).npu()) for shape in SHAPES]
    optimizer = torch.optim.AdamW(parameters, lr=1e-2, **options)
    step = optimizer.step if backend is None else torch.compile(optimizer.step, backend=backend)
    for i in range(6):
        for k, p in enumerate(parameters):
            p.grad = gradient(i, k, p.shape).npu()
        step()
    return [*parameters, *(v for p in parameters for v in optimizer.state[p].values())]


def test_which_formula_a_compiled_optimizer_has():
    """capturable=True: eager mode's, bit for bit (before torch 2.13 Dynamo traces another one). Else
    Dynamo traces a third one, with bias corrections in float32 tensors, where eager mode has Python's
    numbers: it has those bits."""
    ours = torchair.get_npu_backend()
    captured = stepped(ours, capturable=True)
    assert all(map(torch.equal, captured, stepped("eager", capturable=True)))
    if versions.dynamo_traces_adamw_as_eager():
        assert all(map(torch.equal, captured, stepped(None, capturable=True)))
    traced = stepped(ours)
    assert all(map(torch.equal, traced, stepped("eager")))
    assert not all(map(torch.equal, traced, stepped(None)))


def test_copies_of_a_compiled_optimizer_are_left_out(counts, monkeypatch):
    on, _alive = optimized(5)
    assert counts("copies_removed") >= len(SHAPES)  # a parameter each, at least
    monkeypatch.setenv("NPU_GRAPH_OFF", "copies,numbers,dead")
    torch._dynamo.reset()
    _compiler.runners.clear()
    off, _alive = optimized(5)
    assert counts("copies_removed") == 0
    assert all(map(torch.equal, on, off))


NUMBER_CALLS = [
    ("_foreach_add", "Scalar", 1), ("_foreach_sub", "Scalar", 1), ("_foreach_mul", "Scalar", 0.1),
    ("_foreach_div", "Scalar", 0.001), ("_foreach_neg", "", None), ("_foreach_sqrt", "", None),
    ("_foreach_reciprocal", "", None), ("_foreach_pow", "ScalarAndTensor", 0.9),
    ("_foreach_pow", "ScalarAndTensor", 0.999), ("_foreach_pow", "ScalarAndTensor", 1.0),
]  # fmt: skip


@pytest.mark.parametrize("name, overload, number", NUMBER_CALLS)
def test_host_numbers_have_the_bits_of_the_kernels(name, overload, number):
    from torch_npu import _C

    values = [torch.tensor(float(i)) for i in range(1, 1500)]
    values += [torch.tensor(v) for v in (0.0, -0.0, -2.5, 1e-30, float("inf"), float("nan"))]
    program = _C._TracedGraph()
    places = [program.input() for _ in values]
    args = (places,) if number is None else (places, number)
    args = args[::-1] if overload == "ScalarAndTensor" else args
    made = program.call("aten::" + name, overload, args, {})
    program.finish([made])
    (got,) = program.run(list(values))
    call = getattr(getattr(torch.ops.aten, name), overload or "default")
    given = (values,) if number is None else (values, number)
    wanted = call(*(given[::-1] if overload == "ScalarAndTensor" else given))
    for a, b in zip(got, wanted, strict=True):
        assert torch.equal(a.view(torch.int32), b.view(torch.int32))


def test_lists_divided_by_host_numbers():
    """One call of the driver instead of one per tensor; dtypes that do not go so still work."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        x = [torch.randn(s).to(dtype).npu() for s in ((3, 4), (5,), (0,), (2, 2))]
        y = [torch.tensor(v, dtype=torch.float32) for v in (3.0, 0.7, 2.0, -1.5)]
        for got, a, b in zip(torch._foreach_div(x, y), x, y, strict=True):
            assert got.dtype == dtype and torch.equal(got.cpu(), (a.cpu() / b))
        same = [t.to(dtype) for t in y]
        for got, a, b in zip(torch._foreach_mul(x, same), x, same, strict=True):
            assert got.dtype == dtype and torch.equal(got.cpu(), a.cpu() * b)
        torch._foreach_div_(x, same)


def test_a_failing_kernel_leaves_the_recording_usable():
    def body(x, index):
        return torch.index_select(x.cumsum(0), 0, index) * 2

    function, x = compiled(body), torch.arange(4.0, device="npu")
    good, bad = torch.tensor([1], device="npu"), torch.tensor([7], device="npu")
    for _ in range(3):
        assert torch.equal(function(x, good), body(x, good))
        with pytest.raises((IndexError, RuntimeError)):
            function(x, bad)
            torch.npu.synchronize()


def test_host_calls_are_counted_as_fallbacks(counts):
    if not host_device():
        pytest.skip("host code cannot read this device's memory at any time")
    _compiler.runners.clear()
    function, x = compiled(lambda x: torch.cumsum(x, 0).logsumexp(0)), randn(5)
    [function(x) for _ in range(3)]
    assert counts("host_calls") >= 1 and counts("islands") == 0


def test_a_compiled_optimizer_works_in_place(counts, monkeypatch):
    """Its lists are new ones in the traced graph; in memory they are those of eager mode, nearly."""
    on, _alive = optimized(4)
    assert counts("reused") >= len(SHAPES)
    small = sum(run.replayer.counts()["arena_bytes"] for run in list(_compiler.runners))
    monkeypatch.setenv("NPU_GRAPH_OFF", "reuse")
    torch._dynamo.reset()
    _compiler.runners.clear()
    off, _alive = optimized(4)
    assert counts("reused") == 0
    assert small < sum(run.replayer.counts()["arena_bytes"] for run in list(_compiler.runners))
    assert all(map(torch.equal, on, off))
