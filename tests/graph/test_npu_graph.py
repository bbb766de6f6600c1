# SPDX-License-Identifier: Apache-2.0
"""torch.npu.NPUGraph, torch.npu.graph and make_graphed_callables."""

import pytest
import torch
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
    for p, q in zip(eager.parameters(), graphed.parameters()):
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
        for p, q in zip(eager.parameters(), graphed.parameters()):
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
