# SPDX-License-Identifier: Apache-2.0
"""OpOverflowCheck on devices: questions are asked and answered later, about what was there then."""

import threading

import op_tools
import pytest
import torch
from optools_devices import KEYS

BIG = 60000.0  # twice that is no half


def half(device, *sizes):
    return torch.full(sizes or (8,), BIG, dtype=torch.half, device=device)


def blamed(tool):
    return [(e["op"], e["first_bad"]) for e in tool.events()]


@pytest.mark.parametrize("names", ["", "aten::add.*"], ids=["every operator", "a list"])
def test_what_is_overwritten_before_the_question_is_asked(device, monkeypatch, names):
    if names:
        monkeypatch.setenv("OP_OVERFLOW_CHECK_LIST", names)
    x = half(device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        y = x + x
        y.zero_()
        z = x + 1
        z.view(2, 4)[1].fill_(float("inf"))
    assert blamed(tool)[0] == ("aten::add.Tensor", True)
    assert ("aten::add.Tensor", True) not in blamed(tool)[1:]


def test_a_gradient_another_thread_overwrites(device):
    x = torch.ones(8, dtype=torch.half, device=device, requires_grad=True)
    tool = op_tools.OpOverflowCheck()
    with tool:
        (x * BIG).backward(half(device))
        x.grad.zero_()
    first = tool.first()
    assert first["op"] == "aten::mul.Tensor" and first["phase"] == "backward"
    assert tool.history()[-1]["number"] == first["number"]


def test_what_backward_reads_was_judged_when_forward_wrote_it(device):
    x = half(device).requires_grad_()
    tool = op_tools.OpOverflowCheck()
    with tool:
        y = (x + x).exp()  # its backward multiplies by the infinities
        y.backward(torch.zeros_like(y))
    assert [op for op, first in blamed(tool) if first] == ["aten::add.Tensor"]
    assert ("aten::mul.Tensor", False) in blamed(tool)


def test_a_part_of_bad_contents(device):
    x = half(device, 4, 4)
    tool = op_tools.OpOverflowCheck()
    with tool:
        y = x + x
        y[1] * 2
        y[:, 1:3].neg()
    assert [first for _, first in blamed(tool)] == [True, False, False]


def test_memory_that_is_used_again(device):
    """New tensors where a bad one lay are not taken for it."""
    x = half(device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        for _ in range(3):
            y = x + x
            del y
            fresh = torch.empty_like(x)
            fresh.fill_(1.0)
            fresh + x
    assert blamed(tool) == [("aten::add.Tensor", True)] * 3


def test_a_storage_taken_away(accelerator):
    """Sharded training frees storages of live tensors: nothing is read there afterwards."""
    x = torch.ones(1000, device=accelerator)
    tool = op_tools.OpOverflowCheck()
    with tool:
        y = x + x
        y.untyped_storage().resize_(0)
    assert blamed(tool) == []


def test_zeros_without_memory(device):
    """Derivatives that are known to be zero are tensors with no memory behind them."""
    x = torch.ones(3, 2, device=device)
    tool = op_tools.OpOverflowCheck()
    with tool:
        slopes = torch.func.vmap(torch.func.jacfwd(lambda x: x * 2))(x)
    assert slopes.sum().item() == 12 and blamed(tool) == []


def test_the_gradient_is_taken_over_not_copied(device):
    """Autograd counts references: a tool that keeps results must not be counted."""
    w = torch.ones(4, 4, device=device, requires_grad=True)

    def counts():
        w.grad = None
        with op_tools.OpObserve() as observe:
            (w @ w).sum().backward()
        return observe.counts()

    plain = counts()
    with op_tools.OpOverflowCheck():
        assert counts() == plain


def adamw(device):
    """An optimizer of many small tensors that has made a step."""
    ps = [torch.ones(7, device=device, requires_grad=True) for _ in range(200)]
    for p in ps:
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.AdamW(ps, lr=0.1, foreach=True)
    optimizer.step()
    return ps, optimizer


def test_optimizers_of_many_tensors(device):
    ps, optimizer = adamw(device)
    ps[150].grad.fill_(3e38)  # its square is no float
    tool = op_tools.OpOverflowCheck()
    with tool:
        optimizer.step()
    assert tool.first()["op"] == "aten::_foreach_addcmul_.Scalar"
    assert {t["item"] for t in tool.first()["tensors"]} == {150}


def test_small_tensors_are_asked_about_together(accelerator):
    ps, optimizer = adamw(accelerator)
    tool = op_tools.OpOverflowCheck()
    with tool:
        optimizer.step()  # all it reads has been asked about afterwards
        before = tool._core.checked
        with torch.profiler.profile() as seen:
            optimizer.step()
        asked = tool._core.checked - before
    calls = {row.key: row.count for row in seen.key_averages()}
    assert calls.get("aten::linalg_vector_norm", 0) < asked / 32
    # A question per result of eight operators, few per argument; many in one call.
    assert asked < len(ps) * 11  # with those the table of known contents has lost
    assert 0 < calls["aten::_foreach_norm"] < asked / 32


def test_what_is_known_is_not_asked_about_again(accelerator):
    """However the addresses of 400 storages fall into the table of known contents, but for a few.
    Results that are not read again make room first."""
    xs = [torch.ones(8, device=accelerator) for _ in range(400)]
    tool = op_tools.OpOverflowCheck()
    with tool:
        for _ in range(8):
            for x in xs:
                x.neg()  # asks about x and its result
        before = tool._core.checked
        for x in xs:
            x.neg()
        asked = tool._core.checked - before
    assert len(xs) <= asked <= len(xs) + 16


def small_net(device, depth=12):
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(depth)]
    return torch.nn.Sequential(*layers).to(device)


def test_gradients_are_asked_about_together(accelerator):
    """Copies of them: autograd adds into memory without another owner."""
    net, x = small_net(accelerator), torch.ones(4, 8, device=accelerator)
    tool = op_tools.OpOverflowCheck()
    with tool:
        loss = net(x).sum()
        before = tool._core.checked
        with torch.profiler.profile() as seen:
            loss.backward()
        asked = tool._core.checked - before
    calls = {row.key: row.count for row in seen.key_averages()}
    launched = calls.get("aten::linalg_vector_norm", 0) + calls.get("aten::_foreach_norm", 0)
    assert asked > 36 and launched < asked / 8


def test_a_gradient_is_asked_about_as_it_was(accelerator):
    """What is written over it later, or where it lay, is not taken for it."""
    xs = [
        torch.ones(8, dtype=torch.half, device=accelerator, requires_grad=True) for _ in range(20)
    ]
    for x in xs:
        x.register_hook(lambda grad: grad.zero_())
    tool = op_tools.OpOverflowCheck()
    with tool:
        for i, x in enumerate(xs):
            (x * (BIG if i == 7 else 1.0)).backward(half(accelerator))
    assert [x.grad.abs().sum().item() for x in xs] == [0.0] * 20
    bad = [(e["op"], e["phase"]) for e in tool.events() if e["first_bad"]]
    assert bad == [("aten::mul.Tensor", "backward")]


def test_gradients_on_a_stream_of_their_own(accelerator):
    """The room of copies is one stream's."""
    module = getattr(torch, accelerator)
    streams = [module.Stream(), module.Stream()]
    tool = op_tools.OpOverflowCheck()
    with tool:
        for i in range(30):
            with module.stream(streams[i % 2]):
                x = torch.ones(8, dtype=torch.half, device=accelerator, requires_grad=True)
                y = x * (BIG if i == 20 else 1.0)
                y.backward(half(accelerator))
    module.synchronize()
    bad = [(e["op"], e["phase"]) for e in tool.events() if e["first_bad"]]
    assert bad == [("aten::mul.Tensor", "backward")]


def test_more_gradients_than_the_room_of_copies_holds(accelerator):
    """200 KiB each, the last of them bad."""
    xs = [torch.ones(51200, device=accelerator, requires_grad=True) for _ in range(40)]
    tool = op_tools.OpOverflowCheck()
    with tool:
        for i, x in enumerate(xs):
            (x * (3e38 if i == 39 else 2.0)).backward(torch.full_like(x, 2.0))
    assert [(e["op"], e["first_bad"]) for e in tool.events()] == [("aten::mul.Tensor", True)]
    assert [x.grad[-1].item() for x in xs[:3]] == [4.0] * 3


def test_calls_of_several_threads_at_once(accelerator):
    """What was known of a call's arguments is known when it ends, also after other calls in between."""
    x = half(accelerator)
    inside, done = threading.Event(), threading.Event()

    def slow(t):
        inside.set()
        assert done.wait(60)
        return t.clone()

    tool = op_tools.OpOverflowCheck()
    with torch.library._scoped_library("optools_slow", "FRAGMENT") as library:
        library.define("slow(Tensor x) -> Tensor")
        library.impl("slow", slow, KEYS[accelerator])
        with tool:
            bad = x + x
            thread = threading.Thread(target=lambda: torch.ops.optools_slow.slow(bad))
            thread.start()
            assert inside.wait(60)
            (x - x).neg()
            done.set()
            thread.join()
    assert blamed(tool) == [("aten::add.Tensor", True), ("optools_slow::slow", False)]


def test_under_autocast(device):
    x = torch.full((8, 8), BIG, device=device)
    tool = op_tools.OpOverflowCheck()
    dtype = torch.bfloat16 if device == "cpu" else torch.half
    with tool, torch.autocast(device, dtype=dtype):
        (x @ x) @ (x * 1e30)
    assert tool.first() is not None
    assert not tool.unread()


LARGE = {  # over the size from which a tensor is asked about by itself
    "dense": lambda x: x,
    "channels last": lambda x: x.view(8, 64, 32, 64).to(memory_format=torch.channels_last),
    "with gaps": lambda x: torch.stack([x, x], -1)[..., 0],
    "turned": lambda x: x.view(1024, 1024).t(),
    "complex": lambda x: torch.complex(x, x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float", "double"])
@pytest.mark.parametrize("form", LARGE)
def test_large_tensors_of_any_layout(device, form, dtype):
    flat = torch.linspace(-1, 1, 1 << 20, dtype=dtype, device=device)
    clean = LARGE[form](flat.clone())
    flat[12345] = float("nan")
    dirty = LARGE[form](flat)
    tool = op_tools.OpOverflowCheck()
    with tool:
        clean * 2
        torch.add(clean, dirty)
        torch.where(clean == clean, clean, dirty)  # has a NaN to read, takes none
        clean / 0
    assert blamed(tool) == [("aten::add.Tensor", False), ("aten::div.Tensor", True)]
