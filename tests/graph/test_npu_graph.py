# SPDX-License-Identifier: Apache-2.0
"""torch.npu.NPUGraph, torch.npu.graph and make_graphed_callables."""

import pytest
import torch
from gpu import pins_for_cuda
from torch import nn

pytestmark = pytest.mark.modes


def randn(*sizes):
    return torch.randn(*sizes, device="npu")


def captured(body, *args):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        assert torch.npu.is_current_stream_capturing()
        out = body(*args)
    assert not torch.npu.is_current_stream_capturing()
    return graph, out


def test_replays_read_and_write_where_they_were_captured():
    x = randn(4, 4)

    def body(x):
        a = x @ x
        b = a.view(-1)
        b[:4].add_(1)
        return a, b[2:6], torch.sort(a)[0], a.chunk(2)[1]

    graph, out = captured(body, x)
    addresses = [t.data_ptr() for t in out]
    for _ in range(3):
        x.copy_(randn(4, 4))
        graph.replay()
        torch.npu.synchronize()
        assert all(map(torch.equal, out, body(x)))
        assert addresses == [t.data_ptr() for t in out]


def test_nothing_happens_while_capturing():
    state, x = torch.zeros(3, device="npu"), torch.ones(3, device="npu")
    torch.npu.manual_seed(5)

    def body():
        state.add_(x)
        return state * 2, torch.rand(3, device="npu")

    graph, (double, random) = captured(body)
    assert state.tolist() == [0, 0, 0]
    torch.npu.manual_seed(5)
    wanted = [torch.rand(3, device="npu") for _ in range(2)]
    torch.npu.manual_seed(5)
    for n in (1, 2):
        graph.replay()
        assert state.tolist() == [n] * 3 and double.tolist() == [2 * n] * 3
        assert torch.equal(random, wanted[n - 1])


def test_a_whole_training_step():
    torch.manual_seed(0)
    make = lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).npu()  # noqa: E731
    eager, graphed = make(), make()
    graphed.load_state_dict(eager.state_dict())
    data, target = randn(6, 4), randn(6, 1)

    def stepper(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step():
            optimizer.zero_grad(set_to_none=False)
            loss = nn.functional.mse_loss(model(data), target)
            loss.backward()
            optimizer.step()
            return loss

        return step

    eager_step, graph_step = stepper(eager), stepper(graphed)
    for _ in range(2):  # momentum buffers come to be
        eager_step(), graph_step()
    graph, loss = captured(graph_step)
    for _ in range(4):
        data.copy_(randn(6, 4))
        graph.replay()
        assert torch.equal(loss, eager_step())
    for p, q in zip(eager.parameters(), graphed.parameters(), strict=True):
        assert torch.equal(p, q)


def test_graphed_modules_train_as_eager():
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).npu()
    graphed = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).npu()
    graphed.load_state_dict(eager.state_dict())
    function = torch.npu.make_graphed_callables(graphed, (randn(3, 4).requires_grad_(),))
    assert function is graphed
    for _ in range(3):
        x, y = (randn(3, 4).requires_grad_() for _ in range(2))
        y.data.copy_(x.data)
        a, b = eager(x), graphed(y)
        a.sin().sum().backward()
        b.sin().sum().backward()
        assert torch.equal(a, b) and torch.equal(x.grad, y.grad)
        for p, q in zip(eager.parameters(), graphed.parameters(), strict=True):
            assert torch.equal(p.grad, q.grad)
    graphed.eval()
    assert torch.equal(graphed(x), eager(x))  # not captured: as before


def test_what_cannot_be_captured_leaves_the_device_usable():
    x = randn(3)
    for forbidden in (
        lambda: x.sum().item(),
        lambda: x.cpu(),
        lambda: x.nonzero(),
        lambda: torch.npu.synchronize(),
        lambda: x.copy_(torch.zeros(3)),
        lambda: torch.zeros(3).npu(),
        lambda: torch.allclose(x, x),
    ):
        graph = torch.npu.NPUGraph()
        with pytest.raises(RuntimeError, match="not permitted while a stream is captured"):
            with torch.npu.graph(graph):
                x * 2
                forbidden()
        assert not torch.npu.is_current_stream_capturing()
        with pytest.raises(RuntimeError, match="replay without a preceding successful capture"):
            graph.replay()
    assert (x + 1).sum().item() == pytest.approx(x.sum().item() + 3, rel=1e-5)


@pins_for_cuda
def test_pinned_memory_is_copied_at_every_replay():
    x, out = randn(3), torch.empty(3, pin_memory=True)
    given = torch.arange(3.0).pin_memory()

    def body():
        x.copy_(given, non_blocking=True)
        out.copy_(x * 2, non_blocking=True)

    graph, _ = captured(body)
    for k in range(3):
        given.fill_(k)
        graph.replay()
        torch.npu.synchronize()
        assert out.tolist() == [2 * k] * 3


def waits():
    """Calls that wait for what a capture holds, or ask about it."""
    stream, event = torch.npu.current_stream(), torch.npu.Event()
    event.record()
    return {
        "torch.npu.synchronize": torch.npu.synchronize,
        "synchronize": torch.accelerator.synchronize,
        "Stream.synchronize": stream.synchronize,
        "Stream.query": stream.query,
        "Event.synchronize": event.synchronize,
        "Event.query": event.query,
    }


WAITS = (
    "torch.npu.synchronize", "synchronize", "Stream.synchronize", "Stream.query",
    "Event.synchronize", "Event.query",
)  # fmt: skip


@pytest.mark.parametrize("name", WAITS)
def test_waiting_breaks_a_capture_and_leaves_the_device_usable(name):
    x = torch.ones(3, device="npu")
    graph = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match=rf"capture: {name} is not permitted"):
        with torch.npu.graph(graph):
            y = x * 2
            waits()[name]()
    # Caught inside, it is told at the end.
    with pytest.raises(RuntimeError, match=rf"is lost: {name} was called"):
        with torch.npu.graph(graph):
            y = x * 2
            with pytest.raises(RuntimeError, match="not permitted"):
                waits()[name]()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    assert not torch.npu.is_current_stream_capturing()
    for wait in waits().values():
        wait()
    with torch.npu.graph(graph):
        y = x * 2
    graph.replay()
    assert y.tolist() == [2, 2, 2]


def test_other_streams_and_events_are_left_alone():
    x, other = torch.ones(3, device="npu"), torch.npu.Stream()
    before = torch.npu.Event()
    before.record(other)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x + 1
        other.synchronize()
        assert other.query() and before.query()
        before.synchronize()
    graph.replay()
    assert y.tolist() == [2, 2, 2]


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="since torch 2.13")
def test_the_graph_of_torch_accelerator(tmp_path):
    x = torch.zeros(4, device="npu")
    stream, graph = torch.Stream("npu"), torch.accelerator.Graph()
    with stream, graph:
        assert torch.npu.is_current_stream_capturing()
        x += 1
    assert x.tolist() == [0, 0, 0, 0]
    for _ in range(3):
        graph.replay()
    assert x.tolist() == [3, 3, 3, 3]
    shared = torch.accelerator.Graph(pool=graph.pool(), capture_error_mode="thread_local")
    with stream, shared:
        y = x * 2
    shared.replay()
    assert y.tolist() == [6, 6, 6, 6] and shared.pool() == graph.pool()
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "graph.txt"))
    assert "add" in (tmp_path / "graph.txt").read_text()
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="is not permitted while a stream is captured"):
        with stream, graph:
            x.sum().item()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with stream, graph:
        x += 2
    graph.replay()
    assert x.tolist() == [5, 5, 5, 5]


def test_errors_of_torch_cuda():
    graph, _ = captured(lambda: torch.ones(2, device="npu") + 1)
    with pytest.raises(RuntimeError, match="already owns a captured graph"):
        with torch.npu.graph(graph):
            pass
    fresh = torch.npu.NPUGraph()
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        fresh.capture_begin()
    with pytest.raises(RuntimeError, match=r"capture_end\(\) called before capture_begin\(\)"):
        fresh.capture_end()
    with pytest.raises(ValueError, match="thread_local"):
        fresh.capture_begin(capture_error_mode="loud")
    with pytest.warns(UserWarning, match="The NPU Graph is empty"):
        with torch.npu.graph(fresh):
            pass
    shared = torch.npu.graph_pool_handle()
    pooled = torch.npu.NPUGraph()
    with torch.npu.graph(pooled, pool=shared):
        torch.ones(1, device="npu")
    assert pooled.pool() == shared and graph.pool() != shared
    graph.reset()
    with pytest.raises(RuntimeError, match="replay without"):
        graph.replay()
    with pytest.raises(AssertionError, match="only Tensors"):
        torch.npu.make_graphed_callables(lambda x: x, (3,))
    hooked = nn.Linear(2, 2).npu()
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(AssertionError, match="hooks"):
        torch.npu.make_graphed_callables(hooked, (randn(1, 2),))


def twice_transposed(x):
    y = x * 2
    y.t_().add_(torch.arange(4.0, device=x.device))
    y.t_()
    return y * 1, y


def view_before(x):
    y = x * 2
    v = y[:]
    y.t_()
    return v + y, y.unsqueeze_(0)


def memory_swapped(x):
    y = x * 2
    v = y[1:]
    y.set_(x.t() + 5)
    return y * 3, v + 1


def lazily_cloned(x):
    c = torch._lazy_clone(x)
    x.add_(1)
    d = torch._lazy_clone(c).mul_(3)
    return c * 2, d, torch.cumsum(c, 0)


def resized(x):
    t = x.clone()
    w = t.view(-1)
    t.resize_(300, 300)
    w.mul_(2)
    t.view(-1)[16:].fill_(3)
    other = x * 7
    return torch.cumsum(t, 0), torch.fmax(t, t), other + t[0, 0], t


def resized_by_out(x):
    y, z = (torch.empty(0, device=x.device) for _ in range(2))
    torch.mul(x, 2, out=y)
    torch.cumsum(y, 0, out=z)
    return y, z, y.t() + z


@pytest.mark.parametrize(
    "body",
    [twice_transposed, view_before, memory_swapped, lazily_cloned, resized, resized_by_out],
    ids=lambda body: body.__name__,
)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_tensors_that_change_what_they_show(body):
    """Sizes, strides and memory of a tensor that is changed in place, against the CPU's results."""
    x = torch.zeros(4, 4, device="npu")
    held = [torch.empty(16, device="npu") for _ in range(3)]  # addresses in another order
    graph, out = captured(body, x)
    del held
    for _ in range(3):
        given = torch.randn(4, 4)
        x.copy_(given)
        graph.replay()
        torch.npu.synchronize()
        for a, b in zip((*out, x), (*body(given), given), strict=True):
            assert a.shape == b.shape and torch.allclose(a.cpu(), b, rtol=1e-5)


def test_geometry_of_the_programs_own_tensors_is_left_alone():
    """The kernels of a replay work where they were captured, whatever tensors show by then."""
    x, y = torch.arange(12.0, device="npu").view(3, 4), torch.zeros(2, device="npu")

    def body():
        before = x * 2
        x.t_()
        y.unsqueeze_(0)
        return before, x * 3, y + 1

    graph, out = captured(body)
    assert x.shape == (4, 3) and y.shape == (1, 2)
    for _ in range(2):
        x.add_(1)
        graph.replay()
        assert x.shape == (4, 3) and y.shape == (1, 2)
        assert torch.equal(out[0], x.t() * 2) and torch.equal(out[1], x * 3)
        assert out[2].tolist() == [[1, 1]]
