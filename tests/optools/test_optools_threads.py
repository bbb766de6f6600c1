# SPDX-License-Identifier: Apache-2.0
"""Python API names wherever Python runs: other threads, backward, beside modes of the user's."""

import queue
import threading

import op_tools
import pytest
import torch
from op_tools import _C
from optools_helpers import in_thread
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint


def modes():
    return torch._C._len_torch_function_stack()


@pytest.fixture
def worker():
    """A thread that is there before the tool: worker(function) -> result."""
    work, results = queue.Queue(), queue.Queue()

    def loop():
        while (function := work.get()) is not None:
            results.put(function())

    thread = threading.Thread(target=loop)
    thread.start()

    def call(function):
        work.put(function)
        return results.get(timeout=60)

    yield call
    work.put(None)
    thread.join()


def observed(monkeypatch, names, run):
    monkeypatch.setenv("OP_OBSERVE_LIST", names)
    tool = op_tools.OpObserve()
    with tool:
        run()
    return [(r["op"].split("::")[1].split(".")[0], r["phase"], r["api"]) for r in tool.records()]


@pytest.mark.parametrize("when", ["before", "after"])
def test_names_in_other_threads(device, monkeypatch, worker, when):
    call = worker if when == "before" else in_thread
    x = torch.randn(2, 4, device=device)
    w = torch.randn(5, 4, device=device, requires_grad=True)

    def step():
        F.linear(x, w).sin().sum().backward()
        return modes()

    depth = []
    seen = observed(monkeypatch, "torch.nn.functional.linear", lambda: depth.append(call(step)))
    assert depth == [1]
    assert {api for _, _, api in seen} == {"torch.nn.functional.linear"}
    assert ("mm", "backward", "torch.nn.functional.linear") in seen
    assert any(phase == "forward" for _, phase, _ in seen)
    assert not any(op in ("sin", "cos") for op, _, _ in seen)


def test_no_thread_keeps_the_mode(device, monkeypatch, worker):
    before = threading.getprofile()
    observed(monkeypatch, "torch.add", lambda: worker(lambda: torch.add(torch.ones(2), 1)))
    assert worker(modes) == 0
    assert in_thread(modes) == 0
    assert modes() == 0
    assert threading.getprofile() is before


def test_names_of_python_code_inside_backward(device, monkeypatch):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return torch.tanh(grad)

    x = torch.randn(3, device=device, requires_grad=True)
    for start in (
        lambda y: y.backward(),
        lambda y: torch.autograd.backward([y]),
        lambda y: torch.autograd.grad(y, x),
    ):
        seen = observed(monkeypatch, "torch.tanh", lambda go=start: go(Twice.apply(x).sum()))
        assert seen == [("tanh", "backward", "torch.tanh")]
    assert modes() == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_names_in_checkpoint_recomputation(device, monkeypatch, reentrant):
    x = torch.randn(3, device=device, requires_grad=True)

    def run():
        checkpoint(lambda t: torch.sin(torch.exp(t)), x, use_reentrant=reentrant).sum().backward()

    seen = observed(monkeypatch, "torch.exp", run)
    assert {api for _, _, api in seen} == {"torch.exp"}
    phases = [phase for op, phase, _ in seen if op == "exp"]
    assert phases == ["forward", "backward"]


def test_modes_of_the_user_keep_their_order(device, monkeypatch):
    """A `with` block that begins before the tool and ends while it runs takes off its own mode."""

    class Users(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, function, types, args=(), kwargs=None):
            type(self).calls += 1
            return function(*args, **(kwargs or {}))

    monkeypatch.setenv("OP_OBSERVE_LIST", "torch.sin")
    x = torch.ones(2, device=device)
    tool = op_tools.OpObserve()
    with Users():
        tool.start()
        torch.sin(x)
    calls = Users.calls
    assert calls > 0
    torch.sin(x)
    assert Users.calls == calls
    with torch.device(device):
        torch.sin(torch.ones(2))
    tool.stop()
    assert modes() == 0
    assert [r["op"] for r in tool.records()] == ["aten::sin"] * 3


def test_stopped_inside_an_api_call(device, monkeypatch):
    monkeypatch.setenv("OP_OBSERVE_LIST", "torch.sin")
    tool = op_tools.OpObserve().start()
    x = torch.ones(2, device=device, requires_grad=True)
    y = torch.sin(x).sum()
    x.register_hook(lambda grad: tool.stop())
    y.backward()
    (lambda: None)()  # any event of Python's
    assert modes() == 0
    assert ("aten::cos") in [r["op"] for r in tool.records()]


def test_a_thread_with_a_profiler_is_left_alone(device, monkeypatch, worker):
    import sys

    def profiler(*_):
        pass

    worker(lambda: sys.setprofile(profiler))
    observed(monkeypatch, "torch.sin", lambda: worker(lambda: torch.sin(torch.ones(1))))
    assert worker(sys.getprofile) is profiler
    assert _C.idle()
