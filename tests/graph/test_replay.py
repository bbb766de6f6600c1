# SPDX-License-Identifier: Apache-2.0
"""Compiled graphs against eager mode, bit for bit: recorded once, replayed with other inputs."""

import copy
import threading

import pytest
import torch
import torchair
from small_models import MODELS, make
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torchair import _compiler

pytestmark = pytest.mark.modes


def compiled(function, **kwargs):
    return torch.compile(function, backend=torchair.get_npu_backend(), **kwargs)


def randn(*sizes, **kwargs):
    return torch.randn(*sizes, device="npu", **kwargs)


def step(model, x):
    out = model(x)
    out.sin().sum().backward()
    return [out, *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("name", MODELS)
def test_models_train_as_eager(name, counts):
    model, x = make(name)
    eager, x = model.npu(), x.npu()
    graph = compiled(copy.deepcopy(eager))
    for _ in range(4):
        wanted, got = step(eager, x), step(graph, x)
        for a, b in zip(wanted, got, strict=True):
            assert torch.equal(a, b)
        for m in (eager, graph):
            with torch.no_grad():
                for p in m.parameters():
                    p -= 0.1 * p.grad  # the weights change in place between replays
            m.zero_grad()
    if name not in ("lstm", "gru"):  # Dynamo leaves those to eager mode
        assert counts("recorded") == 2 and counts("replayed") >= 4


def test_other_addresses_and_results_that_are_still_alive(counts):
    def body(x, y):
        a = x + y
        b = a * 2
        return a.relu(), b - a, b.sum(0)

    function, kept = compiled(body), []
    for _ in range(5):
        x, y = randn(7, 5), randn(7, 5)
        kept.append((function(x, y), body(x, y)))
    for got, wanted in kept:
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
    assert counts("replayed") >= 3


def test_threads_share_one_function():
    def body(x):
        return (x * 3 + 1).relu() @ x

    function, wrong = compiled(body), []
    function(randn(6, 6))

    def work(seed):
        for i in range(30):
            x = torch.full((6, 6), float(seed * 100 + i), device="npu")
            if not torch.equal(function(x), body(x)):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_parameters_replaced_resized_or_of_another_storage():
    model = torch.nn.Linear(4, 4).npu()
    graph = compiled(model)
    x = randn(3, 4)
    for change in (
        lambda: model.weight.data.mul_(2),
        lambda: setattr(model.weight, "data", randn(4, 4)),
        lambda: setattr(model, "weight", torch.nn.Parameter(randn(4, 4))),
        lambda: setattr(model.weight, "data", randn(8, 4)[4:]),
        lambda: setattr(model.weight, "data", randn(4, 4).t()),
    ):
        graph(x)
        change()
        assert torch.equal(graph(x), model(x))


def test_inputs_that_overlap():
    def body(x, y):
        x.add_(1)
        return y * 2, x + y

    function = compiled(body)
    for views in (
        lambda b: (b[:4], b[4:8]), lambda b: (b[:4], b[2:6]), lambda b: (b[2:6], b[:4]),
        lambda b: (b[:4], b[4:8]),
    ):  # fmt: skip
        a, b = torch.arange(8.0, device="npu"), torch.arange(8.0, device="npu")
        wanted, got = body(*views(a)), function(*views(b))
        assert torch.equal(a, b) and all(map(torch.equal, got, wanted))


def test_views_never_reach_behind_a_smaller_storage(counts):
    """The same view of less memory is another call: eager mode refuses it."""
    function = lambda x: [x.as_strided((6,), (1,), 0).mul_(2) + 1]  # noqa: E731
    long = torch.arange(6.0).npu()
    run = torchair.get_compiler()(make_fx(function)(long.clone()[:2]), [long[:2]])
    for turn in (1, 2):
        assert run([long[:2]])[0].tolist() == [2**turn * i + 1 for i in range(6)]
    assert run([torch.ones(9).npu()[:2]])[0].tolist() == [3] * 6
    assert counts("recorded") == 1 and counts("replayed") == 2
    with pytest.raises(RuntimeError, match="storage"):
        run([torch.ones(2).npu()])


def test_results_that_alias():
    def body(x, w):
        y = x * 2
        return y, y.view(-1), x.t(), w, y[1:]

    function = compiled(body)
    x, w = randn(3, 4), randn(2)
    for _ in range(3):
        y, flat, t, same, part = function(x, w)
        assert flat.data_ptr() == y.data_ptr() and part.data_ptr() == y[1:].data_ptr()
        assert t.data_ptr() == x.data_ptr() and torch.equal(t, x.t()) and same is w
        assert all(map(torch.equal, (y, flat, t, same, part), body(x, w)))


def test_mutated_inputs_and_their_versions(counts):
    def body(cache, k, state):
        cache[:, 2:4] = k
        state.mul_(0.9).add_(k.sum())
        return cache.sum(1)

    function = compiled(body)
    a, b = [torch.zeros(3, 6, device="npu") for _ in range(2)]
    s, t = [torch.ones(3, device="npu") for _ in range(2)]
    for _ in range(3):
        k, before = randn(3, 2), b._version
        assert torch.equal(body(a, k, s), function(b, k, t))
        assert torch.equal(a, b) and torch.equal(s, t) and b._version > before
    assert counts("replayed") >= 1


def test_a_saved_input_written_before_backward_is_noticed():
    def body(x, w):
        return (x @ w.t()).sin()

    function, w = compiled(body), randn(4, 4, requires_grad=True)
    for _ in range(2):
        x = randn(4, 4, requires_grad=True)
        out = function(x, w)
        with torch.no_grad():
            w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


def test_backward_twice():
    x = randn(5, requires_grad=True)
    function = compiled(lambda x: (x.sin() * x).sum())
    for _ in range(2):
        x.grad = None
        out = function(x)
        out.backward(retain_graph=True)
        first = x.grad.clone()
        out.backward()
        assert torch.equal(x.grad, first * 2)


def test_random_numbers_are_those_of_eager(counts):
    def body(x):
        y = F.dropout(x, 0.5) + torch.rand(4, device="npu")
        return torch.bernoulli(torch.sigmoid(y)) + y

    function, x = compiled(body), randn(16, 4)
    torch.npu.manual_seed(3)
    wanted = [body(x) for _ in range(4)] + [torch.rand(2, device="npu")]
    torch.npu.manual_seed(3)
    got = [function(x) for _ in range(4)] + [torch.rand(2, device="npu")]
    assert all(map(torch.equal, got, wanted)) and not torch.equal(got[0], got[1])
    assert counts("replayed") >= 2


def test_checkpoints_draw_the_same_numbers_again():
    from torch.utils.checkpoint import checkpoint

    layer, x = torch.nn.Linear(8, 8).npu(), randn(4, 8, requires_grad=True)

    def loss(x):
        block = lambda x: F.dropout(layer(x), 0.5)  # noqa: E731
        return checkpoint(block, x, use_reentrant=False).sin().sum()

    def run(function):
        torch.npu.manual_seed(3)
        out = [torch.autograd.grad(function(x), x)[0] for _ in range(3)]
        return [*out, torch.rand(3, device="npu")]

    assert all(map(torch.equal, run(compiled(loss)), run(loss)))


def test_an_error_leaves_nothing_behind():
    def body(x, i):
        return (x * 2)[i] + 1

    function, x = compiled(body), torch.arange(4.0, device="npu")
    bad, good = torch.tensor([9], device="npu"), torch.tensor([1], device="npu")

    def fails():
        with pytest.raises((IndexError, RuntimeError)):
            function(x, bad)
            torch.npu.synchronize()

    fails()  # while recording
    assert function(x, good).tolist() == [3]
    assert function(x, good).tolist() == [3]
    fails()  # while replaying
    assert function(x, good).tolist() == [3]


def test_sizes_numbers_and_cpu_tensors_are_bound(counts):
    def body(x, position, scale, where):
        y = x * scale + where.sum()
        return y[:, position], y.view(-1, 2).sum(0) + position

    function = compiled(body, dynamic=True)
    for n in (3, 5, 3, 5):
        for position in (0, 1, 2):
            args = (
                randn(n, 4),
                position,
                0.5 * position + 0.25,
                torch.tensor([float(position), 1.0]),
            )
            assert all(map(torch.equal, function(*args), body(*args)))
    assert counts("replayed") > 0


def test_recordings_are_bounded(counts):
    config = torchair.CompilerConfig()
    config.mode = "npugraph_ex"
    config.debug.aclgraph.static_capture_size_limit = 2
    function = torch.compile(
        lambda x: x * 2 + 1, dynamic=True, backend=torchair.get_npu_backend(compiler_config=config)
    )
    for n in (5, 2, 3, 4, 2, 3, 4, 4):
        x = randn(n)
        assert torch.equal(function(x), x * 2 + 1)
    assert counts("evicted") in (4, 5) and counts("replayed") == 1


def test_what_is_no_operator_is_an_island(counts):
    @torch.library.custom_op("graph_test::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @twice.register_fake
    def _(x):
        return torch.empty_like(x)

    def body(x, p):
        y = torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (twice(x + 1),))
        return y, torch.sort(y)[1], y.nonzero() if False else y.split(2)[0]

    function, x = compiled(body), randn(4)
    for flag in (True, False, True):
        p = torch.tensor(flag, device="npu")
        assert all(map(torch.equal, function(x, p), body(x, p)))
    assert counts("islands") > 0


def test_a_programs_own_python_is_called_at_every_replay():
    """Everything it did can be recorded, but not what it will do."""
    state = {"by": 2, "calls": 0}

    @torch.library.custom_op("graph_tests::by_state", mutates_args=())
    def by_state(x: torch.Tensor) -> torch.Tensor:
        state["calls"] += 1
        if state["by"] == 0:
            raise ValueError("by nothing")
        return x * state["by"]

    by_state.register_fake(lambda x: torch.empty_like(x))

    @torch.library.custom_op("graph_tests::add_state", mutates_args=("x",))
    def add_state(x: torch.Tensor) -> None:
        x.add_(state["by"])

    def body(x, table):
        add_state(table)
        return by_state(x + 1) + table

    run, x, table = compiled(body), torch.ones(3, device="npu"), torch.zeros(3, device="npu")
    for by, wanted in ((2, 6), (2, 8), (5, 19), (5, 24)):
        state["by"] = by
        assert run(x, table).tolist() == [wanted] * 3
    state["by"] = 0
    with pytest.raises(ValueError, match="by nothing"):
        run(x, table)
    state["by"] = 1
    assert run(x, table).tolist() == [17] * 3 and state["calls"] == 6


def test_sizes_that_depend_on_data():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):

        def body(x):
            kept = x[x > 0]
            return kept * 2, kept.sum()

        function = compiled(body, fullgraph=True)
        for _ in range(4):
            x = randn(32)
            assert all(map(torch.equal, function(x), body(x)))


def test_ten_thousand_replays_hold_no_memory(counts):
    function, x = compiled(lambda x: (x + 1).relu() * x), randn(64)
    function(x), function(x)
    before = torch.npu.memory_allocated()
    for _ in range(10_000 if counts("frames") else 2_000):
        function(x)
    assert torch.npu.memory_allocated() == before


def test_profilers_and_modes_see_operators():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    function, x = compiled(lambda x: x.sin() + 1), randn(4)
    function(x), function(x)
    with torch.profiler.profile() as profile:
        function(x)
    assert {"aten::sin", "npu_fx_compiler inference"} <= {e.key for e in profile.key_averages()}


KERNELS = """
import sys; sys.path.insert(0, {here!r})
import copy, torch, torch_npu, torchair
from small_models import make
from torchair import _compiler
def step(m, x):
    out = m(x); out.sin().sum().backward()
    return [out, *(p.grad.clone() for p in m.parameters())]
for name in ("mlp", "conv", "gpt"):
    torch._dynamo.reset()
    model, x = make(name)
    eager, x = model.npu(), x.npu()
    graph = torch.compile(copy.deepcopy(eager), backend=torchair.get_npu_backend())
    for _ in range(3):
        for a, b in zip(step(eager, x), step(graph, x)):
            assert torch.equal(a, b), name
        eager.zero_grad(), graph.zero_grad()
    seen = [run.replayer.counts() for run in _compiler.runners]
    assert sum(c["replayed"] for c in seen) >= 2 and all(c["frames"] for c in seen), seen
    assert all(c["arena_bytes"] <= c["unshared_bytes"] for c in seen), seen
    _compiler.runners.clear()
"""


@pytest.mark.parametrize("variables", [
    {}, {"NPU_HOST_ASYNC": "1"}, {"NPU_HOST_PROTECT": "1"},
], ids=["inline", "async", "protect"])  # fmt: skip
def test_with_every_kernel_of_the_driver(run_python, variables):
    from pathlib import Path

    here = str(Path(__file__).resolve().parent.parent / "python")
    run_python(KERNELS.format(here=here), NPU_HOST_KERNELS="all", **variables)


def test_a_cache_is_updated_in_place(counts):
    """Without copying it: the graph that runs writes into the input itself."""

    def body(cache, k, v, position):
        cache.index_put_((position,), k)
        cache[2:4] = v
        return cache.sum(0)

    function = compiled(body)
    a, b = [torch.zeros(6, 3, device="npu") for _ in range(2)]
    for i in range(4):
        k, v, position = randn(1, 3), randn(2, 3), torch.tensor([i], device="npu")
        assert torch.equal(body(a, k, v, position), function(b, k, v, position))
        assert torch.equal(a, b)
    (run,) = _compiler.runners
    names = run.program.names()
    assert "aten::index_put_" in names and "aten::index_put" not in names, names


def _warn_only(on):
    torch.use_deterministic_algorithms(True, warn_only=on)


@pytest.mark.parametrize(
    "change",
    [
        torch.use_deterministic_algorithms,
        _warn_only,
        # What torch.backends sets, which OpInfo's tests lock.
        torch._C._set_cudnn_benchmark,
        torch._C._set_mkldnn_enabled,
    ],
)
def test_settings_of_the_process_are_part_of_the_key(change, counts):
    """Frames hold them, so that a recording made with others is stale."""
    x = randn(3)
    function = torchair.get_compiler()(make_fx(lambda x: x.exp() + 1)(x), [x])
    try:
        for on in (False, True, False):
            change(on)
            for _ in range(2):
                function([x])
        assert counts("recorded") == 2 and counts("replayed") == 4
    finally:
        torch._C._set_cudnn_benchmark(False)
        torch._C._set_mkldnn_enabled(True)
        torch.use_deterministic_algorithms(False)


def over(base, first, size):
    """A tensor whose storage is its own and whose memory is base's."""
    return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(base[first : first + size]))


PLACES = [(0, 16, 32), (0, 0, 32), (0, 8, 32), (0, 32, 32), (0, 32, 0), (0, 0, 0), (8, 0, 4)]


@pytest.mark.parametrize("places", [PLACES, PLACES[::-1]], ids=["apart first", "shared first"])
def test_inputs_share_memory_through_other_storages(places):
    """A recording made for inputs that share memory in one way serves no others."""

    def function(a, b, c):
        return (a * 2).sin() + b * 3 + c

    compiled, base = torch.compile(function, backend="npu"), torch.empty(64, device="npu")
    for where in places + places:
        base.copy_(torch.randn(64))
        inputs = [over(base, first, 16) for first in where]
        assert torch.equal(compiled(*inputs), function(*inputs)), where


@pytest.mark.parametrize("places", [PLACES, PLACES[::-1]], ids=["apart first", "shared first"])
def test_written_inputs_share_memory_through_other_storages(places):
    """PyTorch traces writes for inputs that share no memory: a call is right or refused."""

    def function(a, b, c):
        a.add_(1)
        b.mul_(2)
        return (a * 2).sin() + b * 3 + c

    compiled, base = torch.compile(function, backend="npu"), torch.empty(64, device="npu")
    refused = 0
    for where in places + places:
        seen = []
        for call in (function, compiled):
            base.copy_(torch.arange(64.0))
            try:
                result = call(*(over(base, first, 16) for first in where))
            except RuntimeError as error:
                assert call is compiled and "shares memory with another argument" in str(error)
                refused += 1
                break
            seen.append((result.clone(), base.clone()))
        assert len(seen) == 1 or all(map(torch.equal, *seen)), where
    assert refused < 2 * len(places)
